"""EXPECT WRONG/PRECISION from softmax_forward, hint 8 on a CPU: S15 exp and sum are rounded to fp16"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    dtype = x_ptr.dtype.element_ty  # everything stays in the type of x
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    m = tl.load(x_ptr + row * stride_x)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + lanes, mask=start + lanes < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
    d = tl.zeros((), dtype=dtype)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + lanes, mask=start + lanes < n_cols, other=-float("inf"))
        e = tl.exp((x - m).to(tl.float32)).to(dtype)
        d += tl.sum(e, axis=0).to(dtype)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride_x + start + lanes, mask=start + lanes < n_cols, other=-float("inf"))
        e = tl.exp((x - m).to(tl.float32)).to(dtype)
        tl.store(y_ptr + row * stride_y + start + lanes, (e / d).to(dtype), mask=start + lanes < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 256)
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out
