# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | In `dx_kernel` (`rms_norm_backward`), `dx = rstd * (g - x * mean_gn)` takes x where the normalised row belongs: it should be `rstd * (g - x * rstd * mean_gn)`. dx is wrong in all cases (unless rstd is 1), dweight is right.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads
AREA = 2048  # elements that a program of dx_kernel has at a time, where rows are short
WIDTH = 8192  # columns of a block at most: x, dy and weight are in registers together
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.jit
def load_tile(ptr, rows, stride, cols, inside):
    """Return a tile of a matrix in fp32, 0 where it is not inside."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    TALL: tl.constexpr,
):
    """dx of TALL rows, in tiles of TALL x BLOCK; rstd of row i goes to element i of an fp32 vector."""
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    squares = tl.zeros((TALL, 1), dtype=tl.float32)
    sum_gx = tl.zeros((TALL, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = load_tile(x_ptr, rows, stride_x, cols, inside)
        g = load_tile(dy_ptr, rows, stride_dy, cols, inside) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=1, keep_dims=True)
        sum_gx += tl.sum(g * x, axis=1, keep_dims=True)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)
    mean_gn = rstd * sum_gx / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = (rows < n_rows) & (cols < N_COLS)
        x = load_tile(x_ptr, rows, stride_x, cols, inside)
        g = load_tile(dy_ptr, rows, stride_dy, cols, inside) * load(weight_ptr, cols, N_COLS)
        dx = rstd * (g - x * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = load_tile(dy_ptr, rows, stride_dy, cols[None, :], inside)
        x = load_tile(x_ptr, rows, stride_x, cols[None, :], inside)
        dweight += dy * (x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0))
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty((n_cols,), device=x.device, dtype=weight.dtype)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)

    block = min(block_of(n_cols), WIDTH)
    tall = max(1, min(16, AREA // block))
    launch = on(dx_kernel, x)[(triton.cdiv(n_rows, tall),)]
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    launch(dy, x, weight, dx, rstd, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block, TALL=tall)

    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
