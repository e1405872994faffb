"""EXPECT WRONG/NONFINITE from softmax_forward, hint 3: S5 -inf - -inf in a block that is all -inf"""

import torch
import triton
import triton.language as tl


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr, y_row_ptr = x_ptr + row * stride_x, y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m_old = -float("inf")
    norm = 0.0
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        block = tl.load(x_row_ptr + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m_old, tl.max(block, axis=0))
        norm = norm * tl.exp(m_old - m) + tl.sum(tl.exp(block - m), axis=0)
        m_old = m
    for start in range(0, n_cols, BLOCK):
        mask = start + lanes < n_cols
        block = tl.load(x_row_ptr + start + lanes, mask=mask, other=-float("inf")).to(tl.float32)
        result = tl.exp(block - m_old) / norm
        tl.store(y_row_ptr + start + lanes, result.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), 16384)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return out
