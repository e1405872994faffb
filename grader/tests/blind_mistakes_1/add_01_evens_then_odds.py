# lab1/elementwise_add.py | everywhere | add_pairs: the sums of even and odd elements are put together with the first axis as the pair axis (tl.trans before tl.reshape), so a block is stored as all even sums followed by all odd sums instead of interleaved | "out[i] = x[i] + y[i]"; every n > 1 (only the first and the last element of a full block are right)
"""Vector addition, two neighbours at a time."""

import torch
import triton
import triton.language as tl

BLOCK = 512


@triton.jit
def load_pair(ptr, even, n):
    """The elements even and even + 1."""
    a = tl.load(ptr + even, mask=even < n)
    b = tl.load(ptr + even + 1, mask=even + 1 < n)
    return a, b


@triton.jit
def add_pairs(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    even = first + 2 * tl.arange(0, BLOCK // 2)
    x0, x1 = load_pair(x_ptr, even, n)
    y0, y1 = load_pair(y_ptr, even, n)
    both = tl.join(x0 + y0, x1 + y1)
    total = tl.reshape(tl.trans(both), (BLOCK,))
    offs = first + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        add_pairs[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
