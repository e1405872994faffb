# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | weight_gradient_kernel: scale, the rstd of the tile's rows, is a vector of SIDE numbers and `dy * x * scale` broadcasts it along the columns of the square tile, so column j is scaled by the rstd of row j of the tile and dweight is wrong (dx is right); it should be scale[:, None].
"""RMSNorm backward: dx row by row, dweight in square tiles."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

SIDE = tl.constexpr(32)  # rows and columns of a tile
STRIPS = 48  # partial results of dweight at most


@triton.jit
def x_and_g(x_row, dy_row, weight_ptr, cols, n_cols):
    """A block of x, and the same block of g = dy * weight."""
    x = load(x_row, cols, n_cols)
    g = load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)
    return x, g


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - n * mean(g * n)) for row i; its rstd goes to element i."""
    i = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + i * stride_dy
    x_row = x_ptr + i * stride_x
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + tl.arange(0, BLOCK), N_COLS)
        xx += x * x
        gx += g * x
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + i, rstd)
    mean_gn = tl.sum(gx, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x, g = x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS)
        store(dx_ptr + i * stride_dx, cols, N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Partial dweight: program (i, k) walks down SIDE columns, and takes every tile that falls to strip k."""
    strip = tl.program_id(axis=1)
    strips = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * SIDE + tl.arange(0, SIDE)
    total = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(strip * SIDE, n_rows, strips * SIDE):
        rows = start + tl.arange(0, SIDE)
        down = rows[:, None].to(tl.int64)
        inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + down * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + down * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        total += dy * x * scale
    store(sums_ptr + strip * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    strips = min(STRIPS, triton.cdiv(n_rows, 32))
    sums = torch.empty((strips, n_cols), device=x.device, dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 32), strips)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
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
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
