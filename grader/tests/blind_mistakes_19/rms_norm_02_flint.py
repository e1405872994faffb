# labs/lab4_production_slice/rms_norm.py | corner | inverse_rms, used by the kernel behind both rms_norm_forward and rms_norm_op: returns 1 / (sqrt(mean square) + eps); eps belongs under the root, 1 / sqrt(mean square + eps)
"""RMSNorm: forward function and operator share one launch."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def inverse_rms(x_row, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The factor that brings a row to a root mean square of 1."""
    lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        piece = load(x_row, first + tl.arange(0, BLOCK), N_COLS)
        lanes += piece * piece
    mean_square = tl.sum(lanes, axis=0) / N_COLS
    return 1.0 / (tl.sqrt(mean_square) + tl.cast(eps, tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    factor = inverse_rms(x_row, eps, N_COLS, BLOCK)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * factor
        store(y_row, cols, N_COLS, n * load(weight_ptr, cols, N_COLS))


def apply_to(x, weight, eps, y):
    """Launch, and return y."""
    n_rows, n_cols = x.shape
    kernel = on(rms_norm_kernel, x)
    kernel[(n_rows,)](
        x, weight, y, x.stride(0), y.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return y


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """RMSNorm of the rows of x, into out where one is given."""
    return apply_to(x, weight, eps, torch.empty_like(x) if out is None else out)


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The same as an operator."""
    return apply_to(x, weight, eps, torch.empty_like(x))
