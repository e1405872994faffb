# labs/lab4_production_slice/rms_norm.py | wrong everywhere | `rms = tl.rsqrt(...)` is already the reciprocal of the root mean square, but the second loop computes `x / rms * w`; it should be `x * rms * w` (or tl.sqrt in place of tl.rsqrt).
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

    squares = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)

    # eps may come as fp64 from torch.compile
    rms = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        w = load(weight_ptr, cols, N_COLS)
        store(y_row, cols, N_COLS, x / rms * w)


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x."""
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
