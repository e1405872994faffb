# labs/lab4_production_slice/rms_norm.py | right | right
"""RMSNorm over rows of any length, and the same as an operator.

Whole blocks of a row need no mask. What is left of it, for a short row all of it, is loaded once and stays in registers.
"""

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
    WHOLE: tl.constexpr = N_COLS // BLOCK * BLOCK  # columns in whole blocks
    lanes = tl.arange(0, BLOCK)

    power = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, WHOLE, BLOCK):
        x = tl.load(x_row + start + lanes).to(tl.float32)
        power += x * x
    if WHOLE < N_COLS:
        rest = load(x_row, WHOLE + lanes, N_COLS)
        power += rest * rest

    rstd = 1.0 / tl.sqrt(tl.sum(power, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    if WHOLE < N_COLS:
        store(y_row, WHOLE + lanes, N_COLS, rest * rstd * load(weight_ptr, WHOLE + lanes, N_COLS))
    for start in range(0, WHOLE, BLOCK):
        cols = start + lanes
        weight = tl.load(weight_ptr + cols).to(tl.float32)
        y = tl.load(x_row + cols).to(tl.float32) * rstd * weight
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    x is (n_rows, n_cols) fp32, fp16 or bf16 with contiguous columns; weight is (n_cols,) of that dtype. The
    result goes to `out`, like x, where one is given; rows of both may be any number of elements apart.
    """
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    strides = x.stride(0), y.stride(0)
    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, y, *strides, eps, **sizes)
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
