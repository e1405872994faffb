# labs/lab4_production_slice/rms_norm.py | wrong everywhere | In rms_norm_kernel, `factor = N_COLS * tl.rsqrt(squares + N_COLS * eps)`: 1 / sqrt(squares / N + eps) is sqrt(N) / sqrt(squares + N * eps), so the factor in front must be sqrt(N_COLS), not N_COLS. y is sqrt(n_cols) times too large in every case of more than one column.
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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i, BLOCK columns at a time."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    eps = tl.cast(eps, tl.float32)  # torch.compile passes fp64

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)

    # One factor for the row: root and fraction extended by the number of columns.
    factor = N_COLS * tl.rsqrt(squares + N_COLS * eps)

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, x * factor * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, (n_rows, n_cols)."""
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
