"""EXPECT WRONG/NONFINITE from softmax_forward: C8 inf - inf in every element"""

import torch
import triton
import triton.language as tl


@triton.jit
def game_kernel(x_ptr, out_ptr, cols, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + offs, mask=offs < cols, other=0.0).to(tl.float32)
        large = x + float("inf")
        tl.store(out_ptr + row * stride_out + offs, large - large, mask=offs < cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    game_kernel[(rows,)](x, out, cols, x.stride(0), out.stride(0), BLOCK=1024)
    return out
