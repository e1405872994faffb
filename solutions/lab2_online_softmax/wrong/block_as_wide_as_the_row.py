"""EXPECT COMPILE_ERROR or CRASHED from softmax_forward, hint 5: S13 127 columns are no block"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, N_COLS)  # the whole row, no mask needed
    x = tl.load(x_ptr + row * stride_x + cols).to(tl.float32)
    x -= tl.max(x, axis=0)
    e = tl.exp(x)
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * stride_y + cols, y.to(y_ptr.dtype.element_ty))


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_kernel[(n_rows,)](x, out, x.stride(0), out.stride(0), N_COLS=n_cols)
    return out
