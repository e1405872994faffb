# labs/lab4_production_slice/rms_norm.py | corner | rms_norm_kernel: the mean of the squares divides by acc.shape[0], the width of the block, in place of N_COLS: wrong wherever n_cols is not that width (no power of two, or above 16384).
"""RMSNorm with block pointers along the row."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def row_pointer(base, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    return tl.make_block_ptr(base, shape=(N_COLS,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, stride_x, stride_y, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    xp = row_pointer(x_ptr + row * stride_x, N_COLS, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(xp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        acc += x * x
        xp = tl.advance(xp, (BLOCK,))
    rstd = tl.rsqrt(tl.sum(acc, axis=0) / acc.shape[0] + tl.cast(eps, tl.float32))
    xp = row_pointer(x_ptr + row * stride_x, N_COLS, BLOCK)
    yp = row_pointer(y_ptr + row * stride_y, N_COLS, BLOCK)
    wp = row_pointer(weight_ptr, N_COLS, BLOCK)
    for _ in range(0, N_COLS, BLOCK):
        x = tl.load(xp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        w = tl.load(wp, boundary_check=(0,), padding_option="zero").to(tl.float32)
        tl.store(yp, (x * rstd * w).to(y_ptr.dtype.element_ty), boundary_check=(0,))
        xp = tl.advance(xp, (BLOCK,))
        yp = tl.advance(yp, (BLOCK,))
        wp = tl.advance(wp, (BLOCK,))


def rms_norm_forward(x, weight, *, eps: float = 1e-6, out=None) -> torch.Tensor:
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(rms_norm_kernel, x)[(n_rows,)](
        x, weight, out, x.stride(0), out.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::rms_norm", mutates_args=())
def rms_norm_op(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return rms_norm_forward(x, weight, eps=eps)
