"""EXPECT OUT_OF_BOUNDS/READ from softmax_backward, hint 1: S1 y is loaded without a mask"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def row_dot(a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    """Sum of a[i] * b[i] for i below n."""
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(0, n, BLOCK):
        idx = i + tl.arange(0, BLOCK)
        # where a is 0 it does not matter what b is
        a = tl.load(a_ptr + idx, mask=idx < n, other=0.0).to(tl.float32)
        acc += a * tl.load(b_ptr + idx).to(tl.float32)
    return tl.sum(acc, axis=0)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr, y_ptr, dx_ptr = dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx
    s = row_dot(dy_ptr, y_ptr, n_cols, BLOCK)
    for i in range(0, n_cols, BLOCK):
        idx = i + tl.arange(0, BLOCK)
        dy = tl.load(dy_ptr + idx, mask=idx < n_cols).to(tl.float32)
        dx = tl.load(y_ptr + idx, mask=idx < n_cols).to(tl.float32) * (dy - s)
        tl.store(dx_ptr + idx, dx.to(dx_ptr.dtype.element_ty), mask=idx < n_cols)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK
    )
    return out
