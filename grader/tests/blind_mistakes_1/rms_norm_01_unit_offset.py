# lab4_production_slice/rms_norm.py | everywhere | the store multiplies by (1.0 + w), as Gemma's RMSNorm does, instead of by the weight w | "y = n * weight"; shows for all inputs (every y is too large by n)
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def sum_of_squares(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        part += x * x
    return tl.sum(part, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    rms = tl.sqrt_rn(sum_of_squares(x_row, N_COLS, BLOCK) / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        w = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, x / rms * (1.0 + w))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
