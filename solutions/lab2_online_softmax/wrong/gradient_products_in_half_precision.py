"""EXPECT WRONG/PRECISION from softmax_backward, hint 8: S15 y * dy is rounded to fp16 before it is summed"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    lanes = tl.arange(0, BLOCK)
    dot = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_ptr + start + lanes, mask=start + lanes < n_cols, other=0.0)
        y = tl.load(y_ptr + start + lanes, mask=start + lanes < n_cols, other=0.0)
        dot += tl.sum((y * dy).to(tl.float32), axis=0)
    dot = dot.to(dy_ptr.dtype.element_ty)
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_ptr + start + lanes, mask=start + lanes < n_cols, other=0.0)
        y = tl.load(y_ptr + start + lanes, mask=start + lanes < n_cols, other=0.0)
        tl.store(dx_ptr + row * stride_dx + start + lanes, y * (dy - dot), mask=start + lanes < n_cols)


def softmax_backward(dy, y, *, out=None):
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8
    )
    return out
