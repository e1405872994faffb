# labs/lab4_production_slice/rms_norm_backward.py | right | right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ELEMENTS = 2048  # of a tile of dx_kernel, where rows are short
MOST_ROWS = 16


@triton.jit
def tile_of(ptr, inside, at):
    """Return a tile in fp32, 0 where it lies outside of the matrix."""
    return tl.load(ptr + at, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    TOGETHER: tl.constexpr,
):
    """dx = rstd * (g - x * rstd^2 * sum(g * x) / N_COLS), where g = dy * weight.

    Program i computes TOGETHER rows, so that short rows do not leave it with little to do.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * TOGETHER + tl.arange(0, TOGETHER)
    exists = rows < n_rows
    down = rows[:, None]
    squares = tl.zeros((TOGETHER, BLOCK), dtype=tl.float32)
    products = tl.zeros((TOGETHER, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < N_COLS)
        x = tile_of(x_ptr, inside, down * stride_x + cols)
        g = tile_of(dy_ptr, inside, down * stride_dy + cols) * load(weight_ptr, cols, N_COLS)
        squares += x * x
        products += g * x

    power = tl.sum(squares, axis=1) / N_COLS + tl.cast(eps, tl.float32)
    rstd = tl.rsqrt(tl.where(exists, power, 1.0))
    tl.store(rstd_ptr + rows, rstd, mask=exists)
    pull = rstd * rstd * tl.sum(products, axis=1) / N_COLS

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < N_COLS)
        x = tile_of(x_ptr, inside, down * stride_x + cols)
        g = tile_of(dy_ptr, inside, down * stride_dy + cols) * load(weight_ptr, cols, N_COLS)
        dx = rstd[:, None] * (g - x * pull[:, None])
        tl.store(dx_ptr + down * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    stride = tl.num_programs(axis=1) * ROWS
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, stride):
        rows = first + tl.arange(0, ROWS)
        down = rows.to(tl.int64)[:, None]
        inside = (down < n_rows) & (cols[None, :] < n_cols)
        rstd = load(rstd_ptr, rows, n_rows)[:, None]
        dy = tile_of(dy_ptr, inside, down * stride_dy + cols[None, :])
        dweight += dy * rstd * tile_of(x_ptr, inside, down * stride_x + cols[None, :])
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    together = min(MOST_ROWS, max(1, ELEMENTS // block))
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(triton.cdiv(n_rows, together),)](
        dy,
        x,
        weight,
        dx,
        rstd,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block,
        TOGETHER=together,
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=16, COLS=128
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
