# labs/lab4_production_slice/rms_norm.py | error | write_block converts with `values.to(y_row.dtype)`: the dtype of a pointer is a pointer type, and fp32 cannot be cast to it, so the kernel does not compile; it should be `y_row.dtype.element_ty`.
"""RMSNorm over rows of any length, with whole blocks first and the rest of the row behind them."""

import torch
import triton
import triton.language as tl
from rows import WARPS, on
from torch.library import triton_op


@triton.jit
def read_block(start_ptr, lanes, left):
    """Return the next columns in fp32; `left` of them belong to the row, and the others are 0."""
    return tl.load(start_ptr + lanes, mask=lanes < left, other=0.0).to(tl.float32)


@triton.jit
def write_block(y_row, lanes, left, values):
    """Store the next columns, rounded to what the matrix holds."""
    tl.store(y_row + lanes, values.to(y_row.dtype), mask=lanes < left)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    mean_square = 0.0
    for done in range(0, N_COLS, BLOCK):
        x = read_block(x_row + done, lanes, N_COLS - done)
        mean_square += tl.sum(x * x, axis=0) / N_COLS
    rstd = 1.0 / tl.sqrt(mean_square + tl.cast(eps, tl.float32))
    for done in range(0, N_COLS, BLOCK):
        left = N_COLS - done
        x = read_block(x_row + done, lanes, left)
        w = read_block(weight_ptr + done, lanes, left)
        write_block(y_row + done, lanes, left, x * rstd * w)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    block = min(triton.next_power_of_2(cols), 8192)
    on(rms_norm_kernel, x)[(rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=cols, BLOCK=block
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
