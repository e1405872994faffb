# labs/lab4_production_slice/layer_norm.py | corner | In mean_and_rstd the squared distance of a lane's mean from the row's mean is added once (tl.where(count > 0, apart * apart, 0.0)) instead of count times (count * apart * apart). Rows of more than 256 columns have lanes with several columns: their variance is too small and y too large; rows of up to 256 columns are right.
"""LayerNorm in one sweep for the statistics: each of 256 lanes keeps count, mean and squares (Welford)."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

LANES = tl.constexpr(256)


@triton.jit
def mean_and_rstd(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of a row of N_COLS numbers and 1 / sqrt(variance + eps), in fp32."""
    count = tl.zeros((LANES,), dtype=tl.float32)
    centre = tl.zeros((LANES,), dtype=tl.float32)  # mean of the columns of a lane
    spread = tl.zeros((LANES,), dtype=tl.float32)  # squared differences from it
    for start in range(0, N_COLS, LANES):
        cols = start + tl.arange(0, LANES)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        count += inside.to(tl.float32)
        before = x - centre
        moved = centre + before / tl.maximum(count, 1.0)
        spread = tl.where(inside, spread + before * (x - moved), spread)
        centre = tl.where(inside, moved, centre)
    # all lanes together
    mean = tl.sum(count * centre, axis=0) / N_COLS
    apart = centre - mean
    between = tl.where(count > 0, apart * apart, 0.0)
    variance = tl.sum(spread + between, axis=0) / N_COLS
    # torch.compile passes eps as fp64, which would make all that follows fp64.
    return mean, tl.rsqrt(variance + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i normalises row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        w = load(weight_ptr, cols, N_COLS)
        b = load(bias_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, (x - mean) * rstd * w + b)


def layer_norm_forward(x, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for each row of x."""
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype) if out is None else out
    n_rows, n_cols = x.shape
    launch = on(layer_norm_kernel, x)[(n_rows,)]
    launch(x, weight, bias, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::layer_norm", mutates_args=())
def layer_norm_op(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """layer_norm_forward as an operator that torch.compile can look into."""
    return layer_norm_forward(x, weight, bias, eps=eps)
