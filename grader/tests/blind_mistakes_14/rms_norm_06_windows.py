# labs/lab4_production_slice/rms_norm.py | right | Correct; unusual are block pointers (tl.make_block_ptr, tl.advance) with boundary checks in place of load and store of rows.py, and lanes of squares that are reduced once behind the loop.
"""RMSNorm with block pointers: the row is a one-dimensional tensor, and a window of BLOCK columns moves along it."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def window(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The first BLOCK columns of a row of N_COLS contiguous columns."""
    return tl.make_block_ptr(
        base=row_ptr, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,)
    )


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    x_window = window(x_row, N_COLS, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        # zeros past the end add nothing
        x = tl.load(x_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        squares += x * x
        x_window = tl.advance(x_window, (BLOCK,))
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    x_window = window(x_row, N_COLS, BLOCK)
    w_window = window(weight_ptr, N_COLS, BLOCK)
    y_window = window(y_row, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        x = tl.load(x_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        w = tl.load(w_window, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(y_window, (x * rstd * w).to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_window = tl.advance(x_window, (BLOCK,))
        w_window = tl.advance(w_window, (BLOCK,))
        y_window = tl.advance(y_window, (BLOCK,))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
