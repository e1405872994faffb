# labs/lab4_production_slice/rms_norm_backward.py | right | right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

FILL = 4096  # elements of a tile of short rows, at most
PIECES = 48


@triton.jit
def tile(ptr, rows, stride, cols, n_rows, n_cols):
    """Rows (a column of numbers) and columns (a row of numbers) of a matrix in fp32, 0 outside."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows.to(tl.int64) * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    TALL: tl.constexpr,
):
    """dx and rstd of TALL rows at once, BLOCK columns at a time."""
    rows = tl.program_id(axis=0) * TALL + tl.arange(0, TALL)[:, None]
    squares = tl.zeros((TALL, 1), dtype=tl.float32)
    sum_gx = tl.zeros((TALL, 1), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        x = tile(x_ptr, rows, stride_x, cols, n_rows, N_COLS)
        g = tile(dy_ptr, rows, stride_dy, cols, n_rows, N_COLS) * weight
        squares += tl.sum(x * x, axis=1, keep_dims=True)
        sum_gx += tl.sum(g * x, axis=1, keep_dims=True)

    # A row that does not exist has some rstd as well, which nobody looks at.
    mean_square = tl.where(rows < n_rows, squares / N_COLS, 1.0)
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)
    mean_gn = rstd * sum_gx / N_COLS

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        n = tile(x_ptr, rows, stride_x, cols, n_rows, N_COLS) * rstd
        g = tile(dy_ptr, rows, stride_dy, cols, n_rows, N_COLS) * weight
        dx = rstd * (g - n * mean_gn)
        inside = (rows < n_rows) & (cols < N_COLS)
        tl.store(dx_ptr + rows.to(tl.int64) * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def dweight_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    piece,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program (i, k) adds up COLS columns of dy * n, from row k * piece to before row (k + 1) * piece."""
    k = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    first = k * piece
    behind = tl.minimum(first + piece, n_rows)
    sums = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for top in range(first, behind, ROWS):
        rows = top + tl.arange(0, ROWS)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < behind, other=0.0)
        dy = tile(dy_ptr, rows, stride_dy, cols, behind, n_cols)
        x = tile(x_ptr, rows, stride_x, cols, behind, n_cols)
        sums += dy * (x * rstd)
    tl.store(sums_ptr + k * n_cols + cols, tl.sum(sums, axis=0, keep_dims=True), mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape

    block = block_of(n_cols)
    tall = max(1, min(16, FILL // block))
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    on(dx_kernel, x)[(triton.cdiv(n_rows, tall),)](
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
        TALL=tall,
    )

    piece = max(32, triton.cdiv(n_rows, PIECES))
    pieces = triton.cdiv(n_rows, piece)
    sums = x.new_empty((pieces, n_cols), dtype=torch.float32)
    on(dweight_kernel, x)[(triton.cdiv(n_cols, 64), pieces)](
        dy,
        x,
        rstd,
        sums,
        n_rows,
        n_cols,
        piece,
        dy.stride(0),
        x.stride(0),
        ROWS=32,
        COLS=64,
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        dx, dweight = backward_op(dy, x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
