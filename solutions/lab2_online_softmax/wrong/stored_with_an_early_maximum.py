"""EXPECT WRONG/MISMATCH from softmax_forward, hint 4: S9 each block is stored before the row is known"""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def single_sweep_softmax(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One sweep: reads and writes each element once."""
    pid = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = cols < n_cols - start
        x = tl.load(x_ptr + pid * stride_x + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(new_m > -float("inf"), new_m, 0.0)
        e = tl.exp(x - shift)
        d = d * tl.exp(m - shift) + tl.sum(e, axis=0)
        m = new_m
        tl.store(y_ptr + pid * stride_y + start + cols, (e / d).to(y_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    single_sweep_softmax[(len(x),)](x, out, x.shape[1], x.stride(0), out.stride(0), BLOCK=BLOCK, num_warps=8)
    return out
