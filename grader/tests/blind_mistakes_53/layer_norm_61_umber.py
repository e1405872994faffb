# labs/lab4_production_slice/layer_norm.py | corner | In `mean_and_rstd`, `counts = tl.where(lanes < N_COLS, visits, 0.0)` gives every lane as many numbers as there were blocks; lanes past the end of the last block had one fewer (`visits - 1`; it should count where `(visits - 1) * LANES + lanes < N_COLS`). Mean and variance are wrong for rows longer than 2048 columns whose length is no multiple of 2048 (2600, 3001, 16385, 40000); rows up to 2048 and multiples of 2048 are right.
"""LayerNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def merge(count_a, mean_a, spread_a, count_b, mean_b, spread_b):
    """Count, mean and sum of squared differences of two groups together, after Chan, Golub and LeVeque."""
    count = count_a + count_b
    share = count_b / tl.maximum(count, 1.0)
    delta = mean_b - mean_a
    return count, mean_a + delta * share, spread_a + spread_b + delta * delta * (count_a * share)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    The variance divides by N_COLS. The row is read once: each lane has a mean and a sum of squared
    differences of its own, after Welford, and the lanes are merged at the end.
    """
    LANES: tl.constexpr = BLOCK if BLOCK < 2048 else 2048
    lanes = tl.arange(0, LANES)
    means = tl.zeros((LANES,), dtype=tl.float32)
    spreads = tl.zeros((LANES,), dtype=tl.float32)
    visits = 0.0
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        visits += 1.0
        delta = tl.where(cols < N_COLS, x - means, 0.0)
        means += delta / visits
        spreads += delta * (x - means)
    counts = tl.where(lanes < N_COLS, visits, 0.0)
    count, mean, spread = tl.reduce((counts, means, spreads), 0, merge)
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(spread / N_COLS + tl.cast(eps, tl.float32))


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
    on(layer_norm_kernel, x)[(n_rows,)](
        x,
        weight,
        bias,
        out,
        x.stride(0),
        out.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=min(block_of(n_cols), 4096),
    )
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
