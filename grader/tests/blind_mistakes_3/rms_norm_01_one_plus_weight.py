# labs/lab4_production_slice/rms_norm.py | wrong everywhere | rms_norm_kernel, second loop: the row is scaled by 1 + weight, as some models store it; the README's y is n * weight.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


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
    # BEGIN TODO 1: `squares`, the sum of the squares of the row, block by block (about 4 lines)
    squares = 0.0
    for begin in range(0, N_COLS, BLOCK):
        x = load(x_row, begin + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    # END TODO 1
    # BEGIN TODO 2: go over the row again: normalise, scale and store it (about 5 lines)
    r = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for begin in range(0, N_COLS, BLOCK):
        offs = begin + tl.arange(0, BLOCK)
        x = load(x_row, offs, N_COLS)
        w = load(weight_ptr, offs, N_COLS)
        store(y_row, offs, N_COLS, x * r * (1.0 + w))
    # END TODO 2


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart. After
    Zhang and Sennrich, arXiv:1910.07467.
    """
    out = torch.empty_like(x) if out is None else out
    # BEGIN TODO 3: launch rms_norm_kernel, one program for each row (about 4 lines)
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    # END TODO 3
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
