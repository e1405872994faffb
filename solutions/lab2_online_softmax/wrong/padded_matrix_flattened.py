"""EXPECT CRASHED from softmax_forward, hint 5: S39 a padded matrix has no flat view"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_flat(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * n_cols
    m = -float("inf")
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + cols, mask=cols < n_cols, other=-float("inf"))
        m = tl.maximum(m, tl.max(x.to(tl.float32), axis=0))
    d = 0.0
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + cols, mask=cols < n_cols, other=-float("inf"))
        d += tl.sum(tl.exp(x.to(tl.float32) - m), axis=0)
    for k in range(0, n_cols, BLOCK):
        cols = k + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + start + cols, mask=cols < n_cols, other=-float("inf"))
        y = tl.exp(x.to(tl.float32) - m) / d
        tl.store(y_ptr + start + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    softmax_flat[(n_rows,)](x.view(-1), out.view(-1), n_cols, BLOCK=4096)
    return out
