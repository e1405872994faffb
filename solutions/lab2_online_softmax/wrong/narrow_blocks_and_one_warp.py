"""EXPECT SLOW from softmax_forward/speed, hint 9 on a GPU: S57 64 columns at a time, and three sweeps"""

import torch
import triton
import triton.language as tl

BLOCK = 64


@triton.jit
def small_steps(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + k + lanes, mask=k + lanes < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x.to(tl.float32), axis=0))
    d = 0.0
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + k + lanes, mask=k + lanes < n_cols, other=-float("inf"))
        d += tl.sum(tl.exp(x.to(tl.float32) - m), axis=0)
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + k + lanes, mask=k + lanes < n_cols, other=-float("inf"))
        y = (tl.exp(x.to(tl.float32) - m) / d).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * stride_y + k + lanes, y, mask=k + lanes < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    small_steps[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=1)
    return out
