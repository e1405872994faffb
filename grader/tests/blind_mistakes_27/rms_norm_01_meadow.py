# labs/lab4_production_slice/rms_norm.py | corner | inverse_rms takes eps as a lower bound, `tl.rsqrt(tl.maximum(power, eps))`, and does not add it: it should be `tl.rsqrt(power + eps)`; shows only where eps is not negligible beside the mean of the squares of a row (narrow rows, a large eps such as 1, by chance a row of one or two small numbers), in any dtype; ordinary rows and eps = 0 are right
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return what a row is multiplied by to be normalised, in fp32."""
    energy = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, N_COLS, BLOCK):
        x = load(x_row, begin + tl.arange(0, BLOCK), N_COLS)
        energy += x * x
    power = tl.sum(energy, axis=0) / N_COLS
    return tl.rsqrt(tl.maximum(power, tl.cast(eps, tl.float32)))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """RMSNorm with a weight for each column; program i has row i, BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    factor = inverse_rms(x_row, eps, N_COLS, BLOCK)
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        weight = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, load(x_row, cols, N_COLS) * factor * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x, (n_rows, n_cols) with contiguous columns; weight is (n_cols,).

    The result goes to `out` where one is given. After Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    height, width = x.shape
    on(rms_norm_kernel, x)[(height,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=width, BLOCK=block_of(width)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
