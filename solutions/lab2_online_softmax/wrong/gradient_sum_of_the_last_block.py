"""EXPECT WRONG/MISMATCH from softmax_backward, hint 6: S7 the sum starts again in every block"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def dx_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        inside = offs < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=inside, other=0.0).to(tl.float32)
        weighted = y * dy
        dx = weighted - y * tl.sum(weighted, axis=0)
        tl.store(dx_ptr + row * stride_dx + offs, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(y)
    n_rows, n_cols = y.shape
    dx_kernel[(n_rows, 1)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK)
    return out
