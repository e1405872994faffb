# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) dx_kernel, second loop: `d = x - mean` is -mean in the lanes past the end of the row, so `squares` is too large where the block is wider than the row; it should be tl.where(mask, x - mean, 0.0). (2) layer_norm_backward: the second call `column_sums(sums[0], dbias)` gives dbias the sums of dweight; it should be sums[1].
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    """dx of row i by program i, and its mean and rstd."""
    pid = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += pid * stride_dy
    x_ptr += pid * stride_x
    dx_ptr += pid * stride_dx
    offs = tl.arange(0, BLOCK)

    # mean
    total = 0.0
    for block in range(0, N_COLS, BLOCK):
        mask = block + offs < N_COLS
        total += tl.sum(tl.load(x_ptr + block + offs, mask=mask, other=0.0).to(tl.float32))
    mean = total / N_COLS

    # sums
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for block in range(0, N_COLS, BLOCK):
        mask = block + offs < N_COLS
        x = tl.load(x_ptr + block + offs, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + block + offs, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + block + offs, mask=mask, other=0.0).to(tl.float32)
        d = x - mean
        g = dy * w
        squares += tl.sum(d * d)
        sum_g += tl.sum(g)
        sum_gd += tl.sum(g * d)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + pid, mean)
    tl.store(rstd_ptr + pid, rstd)

    # dx
    for block in range(0, N_COLS, BLOCK):
        mask = block + offs < N_COLS
        x = tl.load(x_ptr + block + offs, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + block + offs, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + block + offs, mask=mask, other=0.0).to(tl.float32)
        n = (x - mean) * rstd
        dx = rstd * (dy * w - (sum_g + n * rstd * sum_gd) / N_COLS)
        tl.store(dx_ptr + block + offs, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and dy over a group of rows, for COLS columns."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = first + tl.arange(0, ROWS)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)[:, None]
        rows64 = rows.to(tl.int64)[:, None]
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows64 * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows64 * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums[0], dweight)
    column_sums(sums[0], dbias)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
