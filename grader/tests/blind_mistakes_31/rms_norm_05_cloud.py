# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_forward raises eps to at least the machine epsilon of the dtype, `max(eps, torch.finfo(x.dtype).eps)` (1.2e-7 in fp32, 9.8e-4 in fp16, 7.8e-3 in bf16): rows whose mean square is not far above that are too small, so fp32 with eps = 0 and rows near 0.002 (about 1.5 % off), and fp16 or bf16 rows near 0 already with the default eps; rows of ordinary size are right; eps should be handed to the kernel as it is
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def mean_square(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the mean of the squares of a row; each lane adds up its own, and there is one reduction."""
    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, N_COLS, BLOCK):
        values = load(x_row, begin + tl.arange(0, BLOCK), N_COLS)
        partial += values * values
    return tl.sum(partial, axis=0) / N_COLS


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i.

    x and y are (n_rows, N_COLS), weight is (N_COLS,), all of one dtype with contiguous columns; stride_x and
    stride_y are the elements from one row to the next. A program takes BLOCK columns at a time.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    # torch.compile passes eps as fp64.
    rstd = tl.rsqrt(mean_square(x_row, N_COLS, BLOCK) + tl.cast(eps, tl.float32))
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        normalised = load(x_row, cols, N_COLS) * rstd
        store(y_row, cols, N_COLS, normalised * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    out = torch.empty_like(x) if out is None else out
    height, width = x.shape
    floor = max(eps, torch.finfo(x.dtype).eps)
    launch = on(rms_norm_kernel, x)[(height,)]
    launch(x, weight, out, x.stride(0), out.stride(0), floor, N_COLS=width, BLOCK=block_of(width))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
