# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In `merge`, `squares = squares_a + squares_b + delta * delta * count * share`: the last term is delta² * count_b (share is count_b / count); it should be `delta * delta * count_a * share`, i.e. delta² * count_a * count_b / count. The variance is far too large (about twice it plus the mean of the squares of a lane's first number), so y is wrong by a factor in all cases but rows of one column, for `layer_norm_forward` and everything that imports `mean_and_rstd`.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LANES = tl.constexpr(1024)  # each has a count, a mean and a sum of its own


@triton.jit
def merge(count_a, mean_a, squares_a, count_b, mean_b, squares_b):
    """Count, mean and sum of squared differences of two sets of numbers together (Chan et al.)."""
    count = count_a + count_b
    share = count_b / tl.maximum(count, 1.0)  # two sets without a number have count 0
    delta = mean_b - mean_a
    mean = mean_a + delta * share
    squares = squares_a + squares_b + delta * delta * count * share
    return count, mean, squares


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS. The row is read once: each lane merges what it loads with the count, mean
    and sum of squared differences that it has, and the lanes are merged at the end.
    """
    STEP: tl.constexpr = BLOCK if BLOCK < LANES else LANES
    count = tl.zeros((STEP,), dtype=tl.float32)
    mean = tl.zeros((STEP,), dtype=tl.float32)
    squares = tl.zeros((STEP,), dtype=tl.float32)
    for start in range(0, N_COLS, STEP):
        cols = start + tl.arange(0, STEP)
        one = tl.where(cols < N_COLS, 1.0, 0.0)
        count, mean, squares = merge(count, mean, squares, one, load(x_row, cols, N_COLS), 0.0)
    _, row_mean, row_squares = tl.reduce((count, mean, squares), 0, merge)
    variance = row_squares / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return row_mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


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
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS) + load(bias_ptr, cols, N_COLS))


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight and bias are (n_cols,) of that
    dtype. The result goes to `out`, like x, where one is given; rows of both may be any number of elements
    apart. The variance divides by n_cols. After Ba, Kiros and Hinton, arXiv:1607.06450.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), 4096)
    on(layer_norm_kernel, x)[(n_rows,)](
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
