"""EXPECT WRONG/MISMATCH from softmax_backward, hint 6: dx is y * dy, the sum is missing"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=mask).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + offs, (y * dy).to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK
    )
    return out
