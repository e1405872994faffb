# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add_kernel, tl.reshape(tl.trans(both), ...) puts all even sums before all odd sums of a block in place of alternating them, so nearly all elements are sums of other positions (every n >= 2, all dtypes); it should be tl.reshape(both, ...) without tl.trans
"""Add two vectors in pairs: the even and the odd elements of a block apart, joined for the store."""

import torch
import triton
import triton.language as tl

PAIRS = 512


@triton.jit
def pair_sum(x_ptr, y_ptr, at, n):
    exists = at < n
    return tl.load(x_ptr + at, mask=exists) + tl.load(y_ptr + at, mask=exists)


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, PAIRS: tl.constexpr):
    """out[i] = x[i] + y[i]; a program owns PAIRS pairs of neighbours."""
    WIDTH: tl.constexpr = 2 * PAIRS
    start = tl.program_id(0).to(tl.int64) * WIDTH

    left = start + 2 * tl.arange(0, PAIRS)
    even = pair_sum(x_ptr, y_ptr, left, n)
    odd = pair_sum(x_ptr, y_ptr, left + 1, n)
    both = tl.join(even, odd)

    offs = start + tl.arange(0, WIDTH)
    tl.store(out_ptr + offs, tl.reshape(tl.trans(both), (WIDTH,)), mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, 2 * PAIRS)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, PAIRS=PAIRS)
    return out
