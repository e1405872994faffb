# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `load_halves`, `tl.split(tl.reshape(block, (HALF, 2)))` gives the even and the odd elements, not the lower and the upper half; it should be `tl.split(tl.trans(tl.reshape(block, (2, HALF))))`. The sums are stored in the wrong places (out[i] = x[2i] + y[2i] in the lower half of a block): wrong for all sizes but n = 0 and n = 1.
"""Add two vectors: a program loads a whole block at once, and adds and stores it as two halves."""

import torch
import triton
import triton.language as tl

HALF = 1024


@triton.jit
def load_halves(ptr, start, n, HALF: tl.constexpr):
    """One wide load of 2 * HALF elements from start on; returns the lower and the upper half."""
    offs = start + tl.arange(0, 2 * HALF)
    block = tl.load(ptr + offs, mask=offs < n)
    lower, upper = tl.split(tl.reshape(block, (HALF, 2)))
    return lower, upper


@triton.jit
def store_half(ptr, start, n, value, HALF: tl.constexpr):
    """Store HALF elements from start on, as far as they exist."""
    offs = start + tl.arange(0, HALF)
    tl.store(ptr + offs, value, mask=offs < n)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    HALF: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns 2 * HALF elements."""
    start = tl.program_id(axis=0).to(tl.int64) * (2 * HALF)
    x_lower, x_upper = load_halves(x_ptr, start, n, HALF)
    y_lower, y_upper = load_halves(y_ptr, start, n, HALF)
    # The two sums do not depend on each other.
    store_half(out_ptr, start, n, x_lower + y_lower, HALF)
    store_half(out_ptr, start + HALF, n, x_upper + y_upper, HALF)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, 2 * HALF),)](x, y, out, n, HALF=HALF, num_warps=8)
    return out
