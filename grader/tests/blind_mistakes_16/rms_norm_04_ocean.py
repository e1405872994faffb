# labs/lab4_production_slice/rms_norm.py | error | rms_norm_kernel: `tl.arange(0, N_COLS)` does not compile where the number of columns is no power of two; it should be tl.arange(0, BLOCK) with BLOCK a power of two, a mask cols < N_COLS, and a loop over the blocks.
"""RMSNorm: a whole row in registers."""

import torch
import triton
import triton.language as tl
from rows import WARPS, on
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr):
    """y = x / sqrt(mean(x * x) + eps) * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, N_COLS)
    x = tl.load(x_ptr + row * stride_x + cols).to(tl.float32)
    weight = tl.load(weight_ptr + cols).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / N_COLS
    y = x * tl.rsqrt(mean_square + tl.cast(eps, tl.float32)) * weight
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    """x / sqrt(mean(x * x) + eps) * weight for each row of x, in `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols)
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm_forward as an operator that torch.compile can look into."""
    return rms_norm_forward(x, weight, eps=eps)
