# labs/lab4_production_slice/rms_norm.py | error | rms_norm_forward does not pass n_rows, the fourth argument of rms_norm_kernel, so an argument (eps) is missing and the launch raises TypeError; it should pass x, weight, out, n_rows, x.stride(0), out.stride(0), eps.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

ROWS_EACH = 2  # rows of a program, one after the other


@triton.jit
def rms_norm_row(x_row, weight_ptr, y_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Normalise one row."""
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    stride_x,
    stride_y,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    EACH: tl.constexpr,
):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes the rows i * EACH to i * EACH + EACH - 1."""
    first = tl.program_id(axis=0).to(tl.int64) * EACH
    for k in range(0, EACH):
        row = first + k
        if row < n_rows:
            rms_norm_row(x_ptr + row * stride_x, weight_ptr, y_ptr + row * stride_y, eps, N_COLS, BLOCK)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    grid = (triton.cdiv(n_rows, ROWS_EACH),)
    on(rms_norm_kernel, x)[grid](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols), EACH=ROWS_EACH
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
