# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) `groups_kernel` has one `stride_row`, for which the host passes `dy.stride(0)`, and `at = rows * stride_row + cols` serves dy and x; x needs `x.stride(0)`. dweight is wrong (or reads out of bounds) where the row strides of dy and x differ. (2) `LayerNorm.backward` begins with `if not ctx.needs_input_grad[0]: return None, None, None, None`, so weight and bias get no gradient where x needs none; that return should go, or ask for all three. Shows in `layer_norm` where weight or bias alone needs a gradient.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import load, on, store
from torch.library import triton_op

WIDTH = 8192
GROUPS = 64
ROWS, COLS = tl.constexpr(8), tl.constexpr(256)
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def derivative(g, d, mean_g, mean_gn, rstd):
    """dx of some columns of a row, from g = dy * weight and d = x - mean."""
    return rstd * (g - mean_g - d * rstd * mean_gn)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of row i for program i; a row of one block stays in registers. Mean and rstd go to fp32 vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    eps32 = tl.cast(eps, tl.float32)
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        g = load(dy_row, lanes, N_COLS) * load(weight_ptr, lanes, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(lanes < N_COLS, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + eps32)
        mean_g = tl.sum(g, axis=0) / N_COLS
        mean_gn = tl.sum(g * d, axis=0) * rstd / N_COLS
        store(dx_row, lanes, N_COLS, derivative(g, d, mean_g, mean_gn, rstd))
    else:
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            total += load(x_row, start + lanes, N_COLS)
        mean = tl.sum(total, axis=0) / N_COLS
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        of_g = tl.zeros((BLOCK,), dtype=tl.float32)
        of_gd = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            squares += d * d
            of_g += g
            of_gd += g * d
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + eps32)
        mean_g = tl.sum(of_g, axis=0) / N_COLS
        mean_gn = tl.sum(of_gd, axis=0) * rstd / N_COLS
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            d = load(x_row, cols, N_COLS) - mean
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_row, cols, N_COLS, derivative(g, d, mean_g, mean_gn, rstd))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def groups_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_row):
    """Sums of dy * n and of dy over a group of rows, which go to row k of each half of sums, fp32."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        at = rows.to(tl.int64) * stride_row + cols[None, :]
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def finish_kernel(sums_ptr, dweight_ptr, dbias_ptr, groups, n_cols, WIDE: tl.constexpr):
    """Add up the groups: program (i, 0) for dweight, program (i, 1) for dbias."""
    half = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((WIDE,), dtype=tl.float32)
    for group in range(groups):
        total += load(sums_ptr + (half * groups + group) * n_cols, cols, n_cols)
    if half == 0:
        store(dweight_ptr, cols, n_cols, total)
    else:
        store(dbias_ptr, cols, n_cols, total)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty((n_cols,), device=x.device, dtype=x.dtype) if dweight is None else dweight
    dbias = torch.empty((n_cols,), device=x.device, dtype=x.dtype) if dbias is None else dbias
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block,
    )  # fmt: skip
    groups = min(GROUPS, triton.cdiv(n_rows, 8))
    sums = torch.empty((2 * groups, n_cols), device=x.device, dtype=torch.float32)
    on(groups_kernel, x)[(triton.cdiv(n_cols, 256), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0)
    )
    on(finish_kernel, x)[(triton.cdiv(n_cols, 128), 2)](sums, dweight, dbias, groups, n_cols, WIDE=128)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
