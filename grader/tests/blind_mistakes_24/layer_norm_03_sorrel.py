# labs/lab4_production_slice/layer_norm.py | right | right
"""LayerNorm with one sweep for the statistics: every lane runs Welford's recurrence, the lanes are joined at the end."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of the row.

    A lane keeps how many numbers it saw, their mean, and the sum of their squared differences from it.
    """
    LANES: tl.constexpr = BLOCK if BLOCK < 4096 else 4096
    lane = tl.arange(0, LANES)
    seen = tl.zeros((LANES,), dtype=tl.float32)
    centre = tl.zeros((LANES,), dtype=tl.float32)
    spread = tl.zeros((LANES,), dtype=tl.float32)
    for start in range(0, N_COLS, LANES):
        here = start + lane < N_COLS
        x = load(x_row, start + lane, N_COLS)
        seen += tl.where(here, 1.0, 0.0)
        before = tl.where(here, x - centre, 0.0)
        centre += before / tl.maximum(seen, 1.0)
        spread += before * (x - centre)  # 0 where before is 0

    # Lanes may have seen different numbers of columns, those past the end of a short row none.
    rough = tl.sum(seen * centre, axis=0) / N_COLS
    mean = rough + tl.sum(seen * (centre - rough), axis=0) / N_COLS  # takes back the rounding of rough
    off = centre - mean
    variance = tl.sum(spread + seen * off * off, axis=0) / N_COLS
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i: statistics of row i, then y from the last block of the row to the first."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)

    LAST: tl.constexpr = (N_COLS - 1) // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        # The end of the row was read last, so it is the most likely to be in the cache.
        cols = (LAST - back) + tl.arange(0, BLOCK)
        w = load(weight_ptr, cols, N_COLS)
        b = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, (load(x_row, cols, N_COLS) - mean) * rstd * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device) if out is None else out
    shape = {"N_COLS": x.size(1), "BLOCK": block_of(x.size(1))}
    on(layer_norm_kernel, x)[(x.size(0),)](x, weight, bias, y, x.stride(0), y.stride(0), eps, **shape)
    return y


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
