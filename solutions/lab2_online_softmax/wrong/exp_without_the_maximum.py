"""EXPECT WRONG/NONFINITE from softmax_forward, hint 3: S6 no maximum is subtracted"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x) / sum(exp(x))."""
    row = tl.program_id(axis=0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf"))
        total += tl.exp(x.to(tl.float32))
    d = tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf"))
        y = tl.exp(x.to(tl.float32)) / d
        tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x, *, out=None):
    y = torch.empty_like(x) if out is None else out
    rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 4096)
    softmax_kernel[(rows,)](x, y, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=8)
    return y
