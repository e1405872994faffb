"""EXPECT WRONG/NONFINITE from softmax_backward, hint 1: S4 other=-inf where a sum follows"""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def backward_rows(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        # as in the forward pass
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=mask, other=-float("inf")).to(tl.float32)
        total += dy * y
    s = tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=mask).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + offs, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    backward_rows[(dy.size(0),)](
        dy, y, out, dy.size(1), dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8
    )
    return out
