"""EXPECT OUT_OF_BOUNDS/WRITE from softmax_forward, hint 5: S38 out is stepped through with the stride of x"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride, BLOCK: tl.constexpr):
    row_start = tl.program_id(axis=0).to(tl.int64) * stride
    m = tl.full((), -float("inf"), tl.float32)
    for c in range(0, n_cols, BLOCK):
        offs = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row_start + offs, mask=offs < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x.to(tl.float32), axis=0))
    d = tl.full((), 0.0, tl.float32)
    for c in range(0, n_cols, BLOCK):
        offs = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row_start + offs, mask=offs < n_cols, other=-float("inf"))
        d += tl.sum(tl.exp(x.to(tl.float32) - m), axis=0)
    for c in range(0, n_cols, BLOCK):
        offs = c + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row_start + offs, mask=offs < n_cols)
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + row_start + offs, y.to(y_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 8192)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), BLOCK=block, num_warps=8)
    return out
