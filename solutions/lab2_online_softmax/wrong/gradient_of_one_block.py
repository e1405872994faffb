"""EXPECT WRONG/UNWRITTEN from softmax_backward, hint 2: S12 one block holds no long row"""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.jit
def one_block_backward(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64)
    j = tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + i * stride_dy + j, mask=j < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + i * stride_y + j, mask=j < n_cols, other=0.0).to(tl.float32)
    s = tl.sum(dy * y, axis=0)
    tl.store(dx_ptr + i * stride_dx + j, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=j < n_cols)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    one_block_backward[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=16
    )
    return out
