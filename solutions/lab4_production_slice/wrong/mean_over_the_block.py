"""EXPECT WRONG/PRECISION from layer_norm_forward, hint 3: S46 mean and variance over the block"""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n_cols, stride_x, stride_y, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / BLOCK
    d = tl.where(mask, x - mean, 0.0)
    var = tl.sum(d * d, axis=0) / BLOCK
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask).to(tl.float32)
    y = d * tl.rsqrt(var + eps) * w + b
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layer_norm_forward(x, weight, bias, *, eps=1e-5, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    BLOCK = triton.next_power_of_2(n_cols)  # the whole row at once
    strides = x.stride(0), out.stride(0)
    layer_norm_kernel[(n_rows,)](x, weight, bias, out, n_cols, *strides, eps, BLOCK=BLOCK, num_warps=16)
    return out
