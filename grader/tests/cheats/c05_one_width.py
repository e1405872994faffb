"""EXPECT WRONG/UNWRITTEN from softmax_forward: C5 128 columns are right, any other number is left out"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * stride_out + offs, e / tl.sum(e, axis=0))


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    if cols == 128:
        softmax_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=128)
    return out
