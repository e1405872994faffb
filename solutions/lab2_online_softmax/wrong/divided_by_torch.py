"""EXPECT POLICY; unscreened PASS or POLICY/FOREIGN_KERNEL from softmax_forward: S42 torch sums and divides"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def exp_kernel(x_ptr, top_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y = exp(x - maximum of the row)."""
    row = tl.program_id(axis=0).to(tl.int64)
    top = tl.load(top_ptr + row)
    offs = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + offs, mask=offs < n_cols).to(tl.float32)
    tl.store(y_ptr + row * stride_y + offs, tl.exp(x - top), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    top = x.float().max(dim=1).values
    e = torch.empty((n_rows, n_cols), dtype=torch.float32, device=x.device)
    exp_kernel[(n_rows, triton.cdiv(n_cols, BLOCK))](x, top, e, n_cols, x.stride(0), e.stride(0), BLOCK=BLOCK)
    out.copy_(e / e.sum(dim=1, keepdim=True))
    return out
