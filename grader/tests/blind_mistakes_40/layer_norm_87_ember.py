# labs/lab4_production_slice/layer_norm.py | error | The combine function of `tl.reduce((counts, means, squares), axis=0, combine_fn=merge)` in `mean_and_rstd` is `merge(left, right)` with two tuples, but for a tuple of three blocks Triton calls it with six scalars; it should be `merge(count_l, mean_l, squares_l, count_r, mean_r, squares_r)`. The kernel does not compile in any case (the interpreter raises a TypeError as soon as a row has two lanes).
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

WIDTH = 4096  # columns of a block at most: Welford's method holds three numbers for each of its lanes


@triton.jit
def merge(left, right):
    """The moments of two sets of numbers together: how many, their mean, and the squares of differences."""
    count_l, mean_l, squares_l = left
    count_r, mean_r, squares_r = right
    count = count_l + count_r
    # Two empty lanes: 0 / 1 in place of 0 / 0.
    share = count_r / tl.maximum(count, 1.0)
    step = mean_r - mean_l
    return count, mean_l + step * share, squares_l + squares_r + step * step * count_l * share


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    Welford's method in each lane, over the columns that the lane sees; the lanes are merged at the end. The
    variance divides by N_COLS.
    """
    counts = tl.zeros((BLOCK,), dtype=tl.float32)
    means = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        counts += tl.where(inside, 1.0, 0.0)
        step = tl.where(inside, x - means, 0.0)
        means += step / tl.maximum(counts, 1.0)
        squares += step * tl.where(inside, x - means, 0.0)
    _, mean, total = tl.reduce((counts, means, squares), axis=0, combine_fn=merge)
    return mean, tl.rsqrt(total / N_COLS + tl.cast(eps, tl.float32))


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
        weight = load(weight_ptr, cols, N_COLS)
        bias = load(bias_ptr, cols, N_COLS)
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, (x - mean) * rstd * weight + bias)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), WIDTH)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
