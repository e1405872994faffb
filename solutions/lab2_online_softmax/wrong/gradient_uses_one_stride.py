"""EXPECT OUT_OF_BOUNDS/READ from softmax_backward, hint 5: S38 y is stepped through with the stride of dy"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_grad(dy_ptr, y_ptr, dx_ptr, n_cols, stride_in, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_in + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_in + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_in + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_in + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + row * stride_out + offs, dx, mask=offs < n_cols)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), 16384)
    softmax_grad[(n_rows,)](dy, y, out, n_cols, dy.stride(0), out.stride(0), BLOCK=block, num_warps=16)
    return out
