# labs/lab4_production_slice/layer_norm.py | wrong everywhere | In `mean_and_rstd`, `m2s += change * change` squares the difference from the old mean of the lane; Welford's update is `change * (x - means)` with the new mean (0 where the lane is past the end). The first column of each lane adds x * x where it should add 0, so the variance is far too large and y too small in all cases but rows of one column.
"""LayerNorm over rows of any length, with running statistics for each lane, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

MOST_LANES = tl.constexpr(4096)  # each lane carries three numbers, so fewer lanes than a block of columns


@triton.jit
def merge(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    """Join the statistics of two disjoint sets of columns (Chan et al.)."""
    count = count_a + count_b
    share = count_b / tl.maximum(count, 1.0)
    apart = mean_b - mean_a
    mean = mean_a + apart * share
    m2 = m2_a + m2_b + apart * apart * count_a * share
    return mean, m2, count


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    One sweep: lane i follows columns i, i + LANES, i + 2 * LANES, ... after Welford, and the lanes are joined
    at the end. The variance divides by N_COLS.
    """
    LANES: tl.constexpr = BLOCK if BLOCK < MOST_LANES else MOST_LANES
    lanes = tl.arange(0, LANES)
    means = tl.zeros((LANES,), dtype=tl.float32)
    m2s = tl.zeros((LANES,), dtype=tl.float32)
    counts = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        inside = cols < N_COLS
        counts += tl.where(inside, 1.0, 0.0)
        # A lane past the end of the row changes nothing.
        change = tl.where(inside, load(x_row, cols, N_COLS) - means, 0.0)
        means += change / tl.maximum(counts, 1.0)
        m2s += change * change
    mean, m2, _ = tl.reduce((means, m2s, counts), 0, merge)
    variance = m2 / N_COLS
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
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(
        x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
