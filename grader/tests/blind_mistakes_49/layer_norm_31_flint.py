# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In `merged`, `squares = squares_a + squares_b + delta * delta * share` lacks the factor `count_a`: it should be `delta * delta * share * count_a` (count_a * count_b / count). The variance is wrong in all rows of more than 2 columns; the mean is right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def merged(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    """Mean, sum of squared differences from it, and count of two sets of numbers together (Chan et al.)."""
    count = count_a + count_b
    share = count_b / tl.maximum(count, 1.0)
    delta = mean_b - mean_a
    mean = mean_a + delta * share
    squares = squares_a + squares_b + delta * delta * share
    return mean, squares, count


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32, in one sweep.

    Each lane updates its own mean as Welford does; the lanes are merged behind the loop.
    """
    # Each lane has a mean and a sum of squares in registers, so there are 2048 lanes at most.
    LANES: tl.constexpr = BLOCK if BLOCK < 2048 else 2048
    lanes = tl.arange(0, LANES)
    mean = tl.zeros((LANES,), tl.float32)
    squares = tl.zeros((LANES,), tl.float32)
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        before = tl.where(cols < N_COLS, x - mean, 0.0)
        mean += before / (start // LANES + 1)
        squares += before * tl.where(cols < N_COLS, x - mean, 0.0)
    count = ((N_COLS - lanes + LANES - 1) // LANES).to(tl.float32)
    row_mean, row_squares, _ = tl.reduce((mean, squares, count), axis=0, combine_fn=merged)
    return row_mean, tl.rsqrt(row_squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias; program i computes row i."""
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
    apart. The variance divides by n_cols.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = min(block_of(n_cols), 4096)
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block)
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
