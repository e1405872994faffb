# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel loads `weight` once, columns 0 to BLOCK - 1, before the second loop, so rows longer than BLOCK (16384 columns) use the wrong weights from the second block on. It should be loaded in the loop at start + lanes.
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
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    partial = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        partial += x * x
    squares = tl.sum(partial, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    weight = load(weight_ptr, lanes, N_COLS)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, x * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
    if out is None:
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    n_rows, n_cols = x.shape
    launch = on(rms_norm_kernel, x)[(n_rows,)]
    launch(x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
