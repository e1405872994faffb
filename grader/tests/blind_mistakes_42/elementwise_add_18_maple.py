# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `y_odd, y_even = tl.split(...)` has its results in the wrong order: `tl.split` returns index 0, the even elements, first, so it must be `y_even, y_odd = ...`. Even elements of x meet odd elements of y and vice versa, at every size (n = 1: x plus what a masked lane holds).
"""Add two vectors: elements with even and with odd index are added apart and put together again."""

import torch
import triton
import triton.language as tl

PAIRS = 512  # pairs of neighbours in a program


@triton.jit
def _load_pairs(ptr, offs, inside, PAIRS: tl.constexpr):
    """(PAIRS, 2): each row holds an element with even index and its right neighbour."""
    block = tl.load(ptr + offs, mask=inside, other=0.0)
    return tl.reshape(block, (PAIRS, 2))


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    PAIRS: tl.constexpr,
):
    """Program pid owns elements 2 * PAIRS * pid to 2 * PAIRS * (pid + 1) - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * (2 * PAIRS) + tl.arange(0, 2 * PAIRS)
    inside = offs < n

    x_even, x_odd = tl.split(_load_pairs(x_ptr, offs, inside, PAIRS))
    y_odd, y_even = tl.split(_load_pairs(y_ptr, offs, inside, PAIRS))

    even = x_even + y_even
    odd = x_odd + y_odd
    both = tl.reshape(tl.join(even, odd), (2 * PAIRS,))
    tl.store(out_ptr + offs, both, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, 2 * PAIRS),)
        elementwise_add_kernel[grid](x, y, out, n, PAIRS=PAIRS, num_warps=4)
    return out
