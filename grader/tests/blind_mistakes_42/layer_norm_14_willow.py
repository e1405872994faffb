# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In `mean_and_rstd`, `squares += delta * delta` should be `squares += delta * (x - means)` with the mean after its update (delta is 0 outside): Welford's sum takes the difference from the old mean times the difference from the new one. The first number of each lane adds x * x where it should add 0, so the variance is too large in all cases but rows of one column (and where x is near 0 beside eps).
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LANES = 2048  # of a program at most: each carries three numbers


@triton.jit
def join_moments(count_a, mean_a, squares_a, count_b, mean_b, squares_b):
    """Return count, mean and sum of squared differences of two sets together."""
    count = count_a + count_b
    share = count_b / tl.maximum(count, 1.0)  # two empty sets make an empty one
    apart = mean_b - mean_a
    return count, mean_a + apart * share, squares_a + squares_b + apart * apart * count_a * share


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep by Welford's method: lane k has columns k, k + BLOCK and so on, with a count, a mean and the
    sum of squared differences of its own. The lanes are joined at the end. The variance divides by N_COLS.
    """
    counts = tl.zeros((BLOCK,), dtype=tl.float32)
    means = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        counts += tl.where(inside, 1.0, 0.0)
        delta = tl.where(inside, x - means, 0.0)
        means += delta / tl.maximum(counts, 1.0)
        squares += delta * delta
    count, mean, square = tl.reduce((counts, means, squares), 0, join_moments)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(square / count + tl.cast(eps, tl.float32))


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
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    width = min(block_of(n_cols), LANES)
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=width)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
