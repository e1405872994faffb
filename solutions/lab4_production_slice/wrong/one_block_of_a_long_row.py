"""EXPECT WRONG/UNWRITTEN from fused_softmax_forward, hint 2: S12 the first 4096 columns, and no loop"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def fused_softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    rows, cols = x.shape
    softmax_kernel[(rows,)](
        x, out, cols, x.stride(0), out.stride(0), BLOCK=min(triton.next_power_of_2(cols), 4096)
    )
    return out
