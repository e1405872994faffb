"""EXPECT WRONG/NONFINITE from softmax_forward, hint 3: S10 rows far below 0 divide 0 by 0"""

import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def softmax_kernel(inp_ptr, out_ptr, n_cols, stride_inp, stride_out, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    inp_ptr = inp_ptr + row * stride_inp
    out_ptr = out_ptr + row * stride_out
    row_max = 0.0
    row_sum = 0.0
    for i in range(tl.cdiv(n_cols, BLOCK)):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(inp_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        previous = row_max
        row_max = tl.maximum(previous, tl.max(x, axis=0))
        row_sum = row_sum * tl.exp(previous - row_max) + tl.sum(tl.exp(x - row_max), axis=0)
    for i in range(tl.cdiv(n_cols, BLOCK)):
        offs = i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(inp_ptr + offs, mask=offs < n_cols, other=-float("inf")).to(tl.float32)
        softmax_output = tl.exp(x - row_max) / row_sum
        tl.store(out_ptr + offs, softmax_output.to(out_ptr.dtype.element_ty), mask=offs < n_cols)


def softmax_forward(x, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8)
    return out
