# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors through windows; the last window is moved back until it ends with the vector."""

import torch
import triton
import triton.language as tl

WINDOW = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, WINDOW: tl.constexpr):
    """The last window may share elements with the one before it: both store the same sums there."""
    latest = tl.maximum(n - WINDOW, 0)
    begin = tl.minimum(tl.program_id(axis=0).to(tl.int64) * WINDOW, latest)
    position = begin + tl.arange(0, WINDOW)
    # Only a vector shorter than one window has lanes that do not exist.
    exists = position < n
    left = tl.load(x_ptr + position, mask=exists)
    right = tl.load(y_ptr + position, mask=exists)
    tl.store(out_ptr + position, left + right, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    windows = triton.cdiv(x.numel(), WINDOW)
    if windows == 0:
        return out
    elementwise_add_kernel[(windows,)](x, y, out, x.numel(), WINDOW=WINDOW)
    return out
