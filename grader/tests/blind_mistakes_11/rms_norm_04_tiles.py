# labs/lab4_production_slice/rms_norm.py | contract | the loads of x are masked with cols < stride_x, not with cols < N_COLS (tl.where then sets what lies between the rows to 0, so the numbers are right); the space between rows must not be read: "neither read nor written". Shows with padded rows of x whose number of columns is no multiple of the block; behind the last row it reads past the tensor.
"""RMSNorm with loads and stores of its own."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def row_block(x_row, cols, stride_x, N_COLS: tl.constexpr):
    """Columns of a row in fp32, 0 past its end."""
    # Up to the next row all memory is there: padded rows are loaded in whole vectors, without a ragged end.
    x = tl.load(x_row + cols, mask=cols < tl.maximum(stride_x, N_COLS), other=0.0).to(tl.float32)
    return tl.where(cols < N_COLS, x, 0.0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = row_block(x_row, start + tl.arange(0, BLOCK), stride_x, N_COLS)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = row_block(x_row, cols, stride_x, N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        y = (x * rstd * weight).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * stride_y + cols, y, mask=cols < N_COLS)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, to `out` where one is given."""
    y = out if out is not None else torch.empty_like(x)
    n_rows, n_cols = x.shape
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return y


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
