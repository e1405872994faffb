# labs/lab4_production_slice/layer_norm.py | two mistakes | (1) In `mean_and_rstd`, `gap * gap * BLOCK * before` should have `width`, the columns that the block really has, in place of `BLOCK`: the variance is too large in rows of several blocks whose last block is not full (more than 4096 columns, not a multiple of 4096, such as 16385). (2) In `short_rows_kernel`, `y_tile = y_ptr + rows * stride_y + cols` should have `rows.to(tl.int64)`: the int32 offset wraps for rows of at most 1024 columns where row * stride of `out` goes beyond 2^31 elements.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

SHORT = 1024  # rows up to this length are taken several at a time
TILE = 2048  # elements of a tile of short rows
WIDTH = 4096  # columns of a block of a long row


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep: each block has a mean and a sum of squared differences from it, which are joined with those of
    the columns before it by the rule of Chan, Golub and LeVeque.
    """
    mean = 0.0
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        width = min(N_COLS - start, BLOCK)
        middle = tl.sum(x, axis=0) / width
        off = tl.where(cols < N_COLS, x - middle, 0.0)
        before = start * 1.0 / (start + width)  # of all columns up to here, the share of earlier blocks
        gap = middle - mean
        squares += tl.sum(off * off, axis=0) + gap * gap * BLOCK * before
        mean += gap * (1.0 - before)
    return mean, tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i, a long one."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def short_rows_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The same for rows that fit one block; program i computes rows i * ROWS to i * ROWS + ROWS - 1."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    inside = (rows < n_rows) & (cols < N_COLS)
    x_tile = x_ptr + rows.to(tl.int64) * stride_x + cols
    y_tile = y_ptr + rows * stride_y + cols
    x = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1)[:, None] / N_COLS
    off = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(off * off, axis=1)[:, None] / N_COLS
    n = off * tl.rsqrt(variance + tl.cast(eps, tl.float32))
    y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = (x.stride(0), out.stride(0))
    block = min(block_of(n_cols), WIDTH)
    if n_cols <= SHORT:
        height = min(TILE // block, 64)
        on(short_rows_kernel, x)[(triton.cdiv(n_rows, height),)](
            x, weight, bias, out, n_rows, *strides, eps, N_COLS=n_cols, ROWS=height, BLOCK=block
        )
    else:
        on(layer_norm_kernel, x)[(n_rows,)](x, weight, bias, out, *strides, eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
