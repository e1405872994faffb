# labs/lab4_production_slice/layer_norm.py | wrong everywhere | each lane has its own mean and sum of squared differences, but where the lanes are joined (`return ... tl.sum(m2) / N_COLS`) the differences between the means of the lanes are left out: it must be sum of m2 + count * (lane_mean - mean)^2. A row of one block has variance 0; with several blocks the variance is too small by about one part in the number of blocks
"""LayerNorm with running statistics in every lane (Welford), joined once for each row."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def welford(x, live, count, mean, m2):
    """One more number for each lane; a lane that is not live stays as it is."""
    count += tl.where(live, 1.0, 0.0)
    before = x - mean
    mean += tl.where(live, before / tl.maximum(count, 1.0), 0.0)
    m2 += tl.where(live, before * (x - mean), 0.0)
    return count, mean, m2


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    mean = tl.zeros((BLOCK,), dtype=tl.float32)
    m2 = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(0, N_COLS, BLOCK):
        live = at + lanes < N_COLS
        x = tl.load(x_row + at + lanes, mask=live, other=0.0).to(tl.float32)
        count, mean, m2 = welford(x, live, count, mean, m2)
    # lanes may have met different numbers of columns, so their means are weighted
    row_mean = tl.sum(mean * count, axis=0) / N_COLS
    return row_mean, tl.rsqrt(tl.sum(m2, axis=0) / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def normalise(
    x_ptr, gain_ptr, offset_ptr, y_ptr, x_step, y_step, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    r = tl.program_id(0).to(tl.int64)
    x_row = x_ptr + r * x_step
    y_row = y_ptr + r * y_step
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    lanes = tl.arange(0, BLOCK)
    for at in range(0, N_COLS, BLOCK):
        c = at + lanes
        live = c < N_COLS
        x = tl.load(x_row + c, mask=live, other=0.0).to(tl.float32)
        gain = tl.load(gain_ptr + c, mask=live, other=0.0).to(tl.float32)
        offset = tl.load(offset_ptr + c, mask=live, other=0.0).to(tl.float32)
        tl.store(y_row + c, ((x - mean) * rstd * gain + offset).to(y_ptr.dtype.element_ty), mask=live)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    rows, cols = x.shape
    y = torch.empty_like(x) if out is None else out
    # a quarter of the row at a time, so that the lanes have something to add up
    width = max(block_of(cols) // 4, 16)
    on(normalise, x)[(rows,)](x, weight, bias, y, x.stride(0), y.stride(0), eps, N_COLS=cols, BLOCK=width)
    return y


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    return layer_norm_forward(x, weight, bias, eps=eps)
