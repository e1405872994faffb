# labs/lab4_production_slice/rms_norm.py | error | the kernel reads the global CHUNK, which is a plain int: it must be tl.constexpr(...) or an argument; compile error ("Cannot access global variable CHUNK") in every case, though the interpreter runs it and the numbers are right
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, load, on, store
from torch.library import triton_op

# How many columns a program looks at in one go. I tried 1024, 2048 and 4096. It has to be a power of two, because
# tl.arange wants that. Short rows have idle lanes then, but they are masked, so nothing can go wrong.
CHUNK = 2048


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    # which row am I? (int64, or row * stride may overflow)
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    offsets = tl.arange(0, CHUNK)

    # First I need the mean of the squares. Each lane has its own sum, and I add the lanes up at the end.
    partial = tl.zeros((CHUNK,), dtype=tl.float32)
    for start in range(0, N_COLS, CHUNK):
        x = load(x_row, start + offsets, N_COLS)  # fp32, 0 past the end
        partial += x * x
    mean_square = tl.sum(partial, axis=0) / N_COLS

    # Then the factor of the row. No mean is subtracted, that is LayerNorm!
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))

    # Now the row once more. For short rows the second load comes from the cache.
    for start in range(0, N_COLS, CHUNK):
        cols = start + offsets
        x = load(x_row, cols, N_COLS)
        w = load(weight_ptr, cols, N_COLS)  # the same for all rows
        store(y_row, cols, N_COLS, x * rstd * w)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    The result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    # one program for each row; every tensor has its own row stride
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
