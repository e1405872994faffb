"""EXPECT WRONG/NONDETERMINISTIC from softmax_forward on a GPU: C10 programs add to one sum in the order in which they happen to run"""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, sum_ptr, cols, stride_x, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs, mask=offs < cols, other=-float("inf")).to(tl.float32)
    tl.atomic_add(sum_ptr + row, tl.sum(tl.exp(x), axis=0))


@triton.jit
def divide_kernel(x_ptr, sum_ptr, out_ptr, cols, stride_x, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs, mask=offs < cols, other=0.0).to(tl.float32)
    y = (tl.exp(x) / tl.load(sum_ptr + row)).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * stride_out + offs, y, mask=offs < cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    sums = torch.zeros((rows,), dtype=torch.float32, device=x.device)
    grid = (rows, triton.cdiv(cols, 16))
    sum_kernel[grid](x, sums, cols, x.stride(0), BLOCK=16)
    divide_kernel[grid](x, sums, out, cols, x.stride(0), out.stride(0), BLOCK=16)
    return out
