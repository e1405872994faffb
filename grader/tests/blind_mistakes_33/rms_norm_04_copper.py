# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel takes rsqrt(tl.maximum(power, eps)) where it should take rsqrt(power + eps): eps is a lower bound instead of being added; shows where mean(x * x) is not much larger than eps (narrow rows, eps = 1), hidden by rounding for ordinary rows with the default eps, right for eps = 0
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_of_squares(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of x * x over a row, in fp32."""
    total = 0.0
    for block in range((N_COLS + BLOCK - 1) // BLOCK):
        x = load(x_row, block * BLOCK + tl.arange(0, BLOCK), N_COLS)
        total += tl.sum(x * x, axis=0)
    return total / N_COLS


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i computes row i of the normalised and weighted matrix."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    power = mean_of_squares(x_row, N_COLS, BLOCK)
    # eps may be fp64 under torch.compile.
    rstd = tl.rsqrt(tl.maximum(power, tl.cast(eps, tl.float32)))
    for block in range((N_COLS + BLOCK - 1) // BLOCK):
        cols = block * BLOCK + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x, times weight. The result goes to `out`, like x, where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = (x.stride(0), out.stride(0))
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, out, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
