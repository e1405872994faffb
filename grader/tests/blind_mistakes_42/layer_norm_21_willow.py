# labs/lab4_production_slice/layer_norm.py | corner | In `layer_norm_forward`, `mean, rstd = x.new_empty((2, n_rows))` has the dtype of x, so mean and rstd are rounded to 16 bits between `moments_kernel` and `apply_kernel`; it should be `dtype=torch.float32`. fp32 is right; in fp16 and bf16 digits are lost, most of all in rows far from 0 (fp16 around 32 or 512, where the rounding of the mean is a part of the deviation), and a little elsewhere, where n * weight and bias nearly cancel.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on
from torch.library import triton_op

ROWS = tl.constexpr(4)  # of the tile that a program of apply_kernel has
WIDEST_TILE = 1024  # its columns at most


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS.
    """
    lanes = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        sums += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(sums, axis=0) / N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        difference = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += difference * difference
    variance = tl.sum(squares, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def moments_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def apply_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    COLS: tl.constexpr,
):
    """y = (x - mean) * rstd * weight + bias; program (i, j) computes a ROWS x COLS tile.

    x and y are (n_rows, n_cols), weight and bias (n_cols,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. mean and rstd have n_rows numbers.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    row_exists = rows < n_rows
    col_exists = cols < n_cols
    inside = row_exists[:, None] & col_exists[None, :]

    mean = tl.load(mean_ptr + rows, mask=row_exists, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=col_exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=col_exists, other=0.0).to(tl.float32)

    x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    n = (x - mean[:, None]) * rstd[:, None]
    y = n * weight[None, :] + bias[None, :]
    tl.store(y_ptr + rows[:, None] * stride_y + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    mean, rstd = x.new_empty((2, n_rows))
    block = min(block_of(n_cols), 4096)
    on(moments_kernel, x)[(n_rows,)](x, mean, rstd, x.stride(0), eps, N_COLS=n_cols, BLOCK=block)

    width = min(block_of(n_cols), WIDEST_TILE)
    tiles = (triton.cdiv(n_rows, ROWS), triton.cdiv(n_cols, width))
    on(apply_kernel, x)[tiles](
        x,
        weight,
        bias,
        out,
        mean,
        rstd,
        n_rows,
        n_cols,
        x.stride(0),
        out.stride(0),
        COLS=width,
        num_warps=4,
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
