# labs/lab4_production_slice/layer_norm.py | corner | mean_and_rstd: when the squares of a block are joined to those before it, gap is the block's mean minus the mean up to and including this block (count and total are updated first), but the weight here * (count - here) / count belongs to the gap to the mean of the blocks before; the part of the variance that lies between blocks is too small by ((count - here) / count)^2; shows only in rows of more than 16384 columns (two blocks or more) whose blocks differ in their mean: about 1e-5 of y for random rows (visible in fp32), much more for rows with a trend, up to twice as large where two full blocks have levels far apart; hardly any at 16385 columns; should take total / count before they are updated (0 for the first block), or weight with here * count / (count - here)
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep, after Chan, Golub and LeVeque: each block has a mean of its own and squares of the differences
    from that, and is joined to the blocks before it. The variance divides by N_COLS.
    """
    total = 0.0
    squares = 0.0
    count = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)

        here = tl.sum(inside.to(tl.float32), axis=0)
        in_block = tl.sum(x, axis=0)
        block_mean = in_block / here
        off = tl.where(inside, x - block_mean, 0.0)

        count += here
        total += in_block
        gap = block_mean - total / count
        squares += tl.sum(off * off, axis=0) + gap * gap * (here * (count - here) / count)
    mean = total / N_COLS
    variance = squares / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i.

    x and y are (n_rows, N_COLS), weight and bias (N_COLS,), all of one dtype with contiguous columns;
    stride_x and stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        y = n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, y)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
