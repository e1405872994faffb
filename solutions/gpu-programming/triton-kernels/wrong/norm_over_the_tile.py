"""EXPECT WRONG/MISMATCH from add_rms_norm, hint 3: the sum of squares over 1024, whatever the row"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, out_ptr, total_ptr, n_cols, stride_x,
                        stride_residual, stride_out, stride_total, eps, TILE: tl.constexpr):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    squares = 0.0
    for start in range(0, n_cols, TILE):
        offs = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * stride_x + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        r = tl.load(residual_ptr + row * stride_residual + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        total = x + r
        squares += tl.sum(total * total, axis=0)
    rrms = tl.rsqrt(squares / TILE + eps)
    for start in range(0, n_cols, TILE):
        offs = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + row * stride_x + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        r = tl.load(residual_ptr + row * stride_residual + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + offs, mask=offs < n_cols).to(tl.float32)
        total = x + r
        out = total * rrms * weight
        tl.store(
            total_ptr + row * stride_total + offs, total.to(total_ptr.dtype.element_ty), mask=offs < n_cols
        )
        tl.store(out_ptr + row * stride_out + offs, out.to(out_ptr.dtype.element_ty), mask=offs < n_cols)


def add_rms_norm(x, residual, weight, *, out=None, total=None):
    out = torch.empty_like(x) if out is None else out
    total = torch.empty_like(x) if total is None else total
    rows, cols = x.shape
    strides = x.stride(0), residual.stride(0), out.stride(0), total.stride(0)
    add_rms_norm_kernel[(rows,)](x, residual, weight, out, total, cols, *strides, 1e-5, TILE=1024)
    return out, total
