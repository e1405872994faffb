# labs/lab4_production_slice/rms_norm.py | corner | `eps or DEFAULT_EPS` in the launch takes eps = 0 for "not given" and puts 1e-6 in its place; must pass eps as it is. Shows with eps=0 for rows whose mean square is not large against 1e-6 (a row of 1e-3 has rstd 707 instead of 1000); all other eps are right.
"""RMSNorm, forward."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

DEFAULT_EPS = 1e-6


@triton.jit
def reciprocal_rms(row_ptr, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """1 / sqrt(mean of squares + eps) of one row."""
    squares = 0.0
    for first in range(0, N_COLS, BLOCK):
        values = load(row_ptr, first + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(values * values, axis=0)
    return 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """One row for each program."""
    i = tl.program_id(0).to(tl.int64)
    x_ptr += i * stride_x
    y_ptr += i * stride_y
    factor = reciprocal_rms(x_ptr, eps, N_COLS, BLOCK)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        y = load(x_ptr, cols, N_COLS) * factor * load(weight_ptr, cols, N_COLS)
        store(y_ptr, cols, N_COLS, y)


def _launch(x, weight, y, eps):
    """Launch a program for each row, and fill in what was not given."""
    n_rows, n_cols = x.shape
    y = torch.empty_like(x) if y is None else y
    eps = eps or DEFAULT_EPS
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return y


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of each row of x, to out where it is given."""
    return _launch(x, weight, out, eps)


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator."""
    return _launch(x, weight, None, eps)
