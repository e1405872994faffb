# labs/lab4_production_slice/rms_norm.py | corner | reciprocal_rms (the helper of rms_norm_kernel) takes eps as a lower bound of the mean of the squares, `tl.rsqrt(tl.maximum(power, eps))`: right where the mean square is much larger than eps or eps is 0, wrong where they are of like size (rows of small values, eps = 1). It should be `tl.rsqrt(power + eps)`.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def reciprocal_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the factor that brings a row of N_COLS numbers to size 1, in fp32."""
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    power = squares / N_COLS
    return tl.rsqrt(tl.maximum(power, tl.cast(eps, tl.float32)))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Normalise row i and multiply it by the weight; program i has row i, BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    factor = reciprocal_rms(x_row, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * factor
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
