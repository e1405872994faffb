"""EXPECT SLOW from softmax_backward/speed, hint 9 on a GPU: S57 128 columns at a time, by one warp"""

import torch
import triton
import triton.language as tl

BLOCK = 128


@triton.jit
def two_steps(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + row * stride_dy + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + row * stride_dx + offs, dx.to(dx_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    two_steps[(len(dy),)](
        dy, y, out, dy.shape[1], dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=1
    )
    return out
