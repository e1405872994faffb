"""EXPECT WRONG/MISMATCH from softmax_forward: C6 the sum of a long row is guessed from its first columns"""

import torch
import triton
import triton.language as tl


@triton.jit
def sampling_kernel(x_ptr, out_ptr, cols, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs, mask=offs < cols, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - top), axis=0)
    if cols > BLOCK:
        total = total * cols / BLOCK
    for start in range(0, cols, BLOCK):
        here = start + offs
        x = tl.load(x_ptr + row * stride_x + here, mask=here < cols, other=-float("inf")).to(tl.float32)
        tl.store(out_ptr + row * stride_out + here, tl.exp(x - top) / total, mask=here < cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    sampling_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=1024)
    return out
