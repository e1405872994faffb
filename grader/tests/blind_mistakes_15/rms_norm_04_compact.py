# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) The kernel has one stride, that of x, for both matrices, so rows of `out` that lie another distance apart than those of x are written to the wrong places; y needs out.stride(0). (2) The weight is loaded once before the loop at the columns of the first block, so from column 16384 on a row is scaled by the wrong weights; it should be loaded at the columns of each block.
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride
    y_row = y_ptr + row * stride
    cols = tl.arange(0, BLOCK)
    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    weight = load(weight_ptr, cols, N_COLS)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + cols, N_COLS)
        store(y_row, start + cols, N_COLS, x * rstd * weight)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x; the result goes to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
