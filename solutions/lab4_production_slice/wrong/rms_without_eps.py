"""EXPECT WRONG/MISMATCH or WRONG/PRECISION from rms_norm_forward, hint 3: nothing uses the argument eps"""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, n_cols, stride_x, stride_y, eps, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    sum_of_squares = 0.0
    for k in range(0, n_cols, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        x = tl.load(x_row + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
        sum_of_squares += tl.sum(x * x, axis=0)
    rrms = tl.rsqrt(sum_of_squares / n_cols)
    for k in range(0, n_cols, BLOCK):
        offs = k + tl.arange(0, BLOCK)
        mask = offs < n_cols
        x = tl.load(x_row + offs, mask=mask).to(tl.float32)
        weight = tl.load(weight_ptr + offs, mask=mask).to(tl.float32)
        y = x * rrms * weight
        tl.store(y_row + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def rms_norm_forward(x, weight, *, eps=1e-6, out=None):
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    rms_norm_kernel[(rows,)](x, weight, out, cols, x.stride(0), out.stride(0), eps, BLOCK=1024)
    return out
