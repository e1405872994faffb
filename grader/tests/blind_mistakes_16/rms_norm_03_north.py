# labs/lab4_production_slice/rms_norm.py | two mistakes | (1) rms_norm_kernel divides the sum of squares by BLOCKS * BLOCK, the padded width, where it should divide by N_COLS (wrong for rows that do not fill their blocks). (2) y is stored at `offset = row * stride`, the row stride of x; it should be row * stride of out (wrong where x and out have different row strides).
"""RMSNorm over rows of any length, and the same as an operator."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """One row for each program, in BLOCKS blocks."""
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    offset = tl.program_id(axis=0).to(tl.int64) * stride
    squares = 0.0
    for k in range(BLOCKS):
        x = load(x_ptr + offset, k * BLOCK + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
    rstd = tl.rsqrt(squares / (BLOCKS * BLOCK) + tl.cast(eps, tl.float32))
    for k in range(BLOCKS):
        cols = k * BLOCK + tl.arange(0, BLOCK)
        x = load(x_ptr + offset, cols, N_COLS)
        store(y_ptr + offset, cols, N_COLS, x * rstd * load(weight_ptr, cols, N_COLS))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x.

    The result goes to `out`, like x, where one is given.
    """
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, out, x.stride(0), eps, **sizes)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
