"""EXPECT WRONG/MISMATCH from softmax_backward, hint 6: S11 the sum runs over the rows"""

import torch
import triton
import triton.language as tl

ROWS = 1024


@triton.jit
def column_kernel(dy_ptr, y_ptr, dx_ptr, n_rows, stride_dy, stride_y, stride_dx, ROWS: tl.constexpr):
    """dx[:, j] from dy[:, j] and y[:, j]."""
    j = tl.program_id(axis=0)
    i = tl.arange(0, ROWS).to(tl.int64)
    mask = i < n_rows
    dy = tl.load(dy_ptr + i * stride_dy + j, mask=mask, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + i * stride_y + j, mask=mask, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=0))
    tl.store(dx_ptr + i * stride_dx + j, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    strides = dy.stride(0), y.stride(0), out.stride(0)
    column_kernel[(n_cols,)](dy, y, out, n_rows, *strides, ROWS=ROWS)
    return out
