"""EXPECT OUT_OF_BOUNDS/WRITE from softmax_forward, hint 1: S3 the store has no mask"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    top = -float("inf")
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + offs, mask=start + offs < n_cols, other=-float("inf"))
        top = tl.maximum(top, tl.max(x.to(tl.float32), axis=0))
    total = 0.0
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + offs, mask=start + offs < n_cols, other=-float("inf"))
        total += tl.sum(tl.exp(x.to(tl.float32) - top), axis=0)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + offs, mask=start + offs < n_cols, other=-float("inf"))
        y = tl.exp(x.to(tl.float32) - top) / total
        tl.store(y_ptr + row * stride_y + start + offs, y.to(y_ptr.dtype.element_ty))


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(8192, triton.next_power_of_2(n_cols))
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block)
    return out
