# labs/lab4_production_slice/layer_norm_backward.py | corner | dx_kernel, last loop: start = (N_COLS // BLOCK - k) * BLOCK begins one block too far where N_COLS is a multiple of BLOCK (each power of two up to 2048, and each multiple of 2048), so the first BLOCK columns of every row of dx stay unwritten (dweight and dbias are right); it should be ((N_COLS + BLOCK - 1) // BLOCK - 1 - k) * BLOCK.
"""LayerNorm's gradients.

dx: three sweeps over a row in short blocks. The last sweep walks from the end of the row to its beginning, because the
end was read last and is the likeliest to be still in the cache.
dweight, dbias: each group of programs has a contiguous range of rows.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

SHORT = 2048  # columns of a block at most
RANGES = 32  # ranges of rows at most


@triton.jit
def incoming(dy_row, weight_ptr, cols, n_cols):
    """g = dy * weight, 0 past the end of the row."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


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
    """One row of dx, and its mean and rstd."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        part += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(part, axis=0) / N_COLS

    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    s1 = tl.zeros((BLOCK,), dtype=tl.float32)
    s2 = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        # a lane past the end has the value of the mean, and so the difference 0
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS), mean) - mean
        g = incoming(dy_row, weight_ptr, cols, N_COLS)
        dd += d * d
        s1 += g
        s2 += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    c1 = tl.sum(s1, axis=0) / N_COLS
    c2 = tl.sum(s2, axis=0) / N_COLS * rstd

    for k in range(0, (N_COLS + BLOCK - 1) // BLOCK):
        start = (N_COLS // BLOCK - k) * BLOCK  # the last block first
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = incoming(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - c1 - n * c2) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    scale_sums_ptr,
    shift_sums_ptr,
    n_rows,
    n_cols,
    rows_each,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program (i, k) sums COLS columns of the rows k * rows_each to (k + 1) * rows_each - 1."""
    k = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = k * rows_each
    last = tl.minimum(first + rows_each, n_rows)
    scale_tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    shift_tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        r = start + tl.arange(0, ROWS)
        mean = tl.load(mean_ptr + r, mask=r < last, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + r, mask=r < last, other=0.0)[:, None]
        r64 = r.to(tl.int64)[:, None]
        inside = (r < last)[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + r64 * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + r64 * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        scale_tile += dy * (x - mean) * rstd
        shift_tile += dy
    # an empty range stores zeros
    store(scale_sums_ptr + k * n_cols, cols, n_cols, tl.sum(scale_tile, axis=0))
    store(shift_sums_ptr + k * n_cols, cols, n_cols, tl.sum(shift_tile, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)

    block = min(block_of(n_cols), SHORT)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block,
    )  # fmt: skip

    tiles = triton.cdiv(n_rows, 16)
    ranges = min(RANGES, tiles)
    rows_each = triton.cdiv(tiles, ranges) * 16  # whole tiles
    scale_sums = torch.empty((ranges, n_cols), device=x.device, dtype=torch.float32)
    shift_sums = torch.empty((ranges, n_cols), device=x.device, dtype=torch.float32)
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), ranges)]
    launch(
        dy, x, mean, rstd, scale_sums, shift_sums,
        n_rows, n_cols, rows_each, dy.stride(0), x.stride(0), ROWS=16, COLS=128,
    )  # fmt: skip
    column_sums(scale_sums, dweight)
    column_sums(shift_sums, dbias)
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
