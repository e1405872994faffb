# labs/lab4_production_slice/layer_norm.py | wrong everywhere | mean_and_rstd: the lane-wise Welford update adds `delta * delta` to lane_m2, where delta is the difference from the old lane mean only; it should add `delta * (x - lane_mean)` with the updated lane mean. The first element of each lane then adds x * x instead of 0, so the variance is too large (about twice for rows of one step) and y too small.
"""LayerNorm over rows of any length, in one sweep for the statistics: every lane runs Welford on its own columns."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def join_lanes(lane_mean, lane_m2, lane_count, N_COLS: tl.constexpr):
    """Mean and variance of the whole row from those of its lanes (the parallel formula of Chan et al.)."""
    mean = tl.sum(lane_mean * lane_count, axis=0) / N_COLS
    gap = lane_mean - mean
    variance = tl.sum(lane_m2 + lane_count * gap * gap, axis=0) / N_COLS
    return mean, variance


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32.

    Lane l has the columns l, l + LANES, l + 2 * LANES, ... so the row is read only once here.
    """
    LANES: tl.constexpr = BLOCK if BLOCK < 2048 else 2048
    lanes = tl.arange(0, LANES)
    lane_mean = tl.zeros((LANES,), dtype=tl.float32)
    lane_m2 = tl.zeros((LANES,), dtype=tl.float32)
    lane_count = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, N_COLS, LANES):
        cols = start + lanes
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        lane_count += inside.to(tl.float32)
        # A lane without a column in this step keeps what it has.
        delta = tl.where(inside, x - lane_mean, 0.0)
        lane_mean += delta / tl.maximum(lane_count, 1.0)
        lane_m2 += delta * delta
    mean, variance = join_lanes(lane_mean, lane_m2, lane_count, N_COLS)
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


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
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
