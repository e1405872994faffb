"""EXPECT OUT_OF_BOUNDS/READ from softmax_forward: C10 the row is read whole, and what lies behind it is hoped to be small"""

import torch
import triton
import triton.language as tl


@triton.jit
def careless_kernel(x_ptr, out_ptr, cols, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = (e / tl.sum(e, axis=0)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + offs, y, mask=offs < cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    careless_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=triton.next_power_of_2(cols))
    return out
