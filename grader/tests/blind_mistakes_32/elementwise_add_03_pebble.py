# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In elementwise_add_kernel the two half blocks are put together with tl.reshape(tl.join(lower, upper), (2 * HALF,)), which interleaves them (lower[0], upper[0], lower[1], ...), but the store writes them to consecutive offsets: of each block of 1024, element 2k gets the sum of element k and element 2k+1 the sum of element 512+k. Wrong for every n >= 2 (n = 1 and 0 are right). The halves must be concatenated: permute the join to (2, HALF) before the reshape, or store the two halves at their own offsets.
"""Add two vectors: two half blocks are loaded and added, and stored as one."""

import torch
import triton
import triton.language as tl

HALF = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, HALF: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * (2 * HALF)
    first = start + tl.arange(0, HALF)
    second = first + HALF

    lower = tl.load(x_ptr + first, mask=first < n) + tl.load(y_ptr + first, mask=first < n)
    upper = tl.load(x_ptr + second, mask=second < n) + tl.load(y_ptr + second, mask=second < n)

    whole = tl.reshape(tl.join(lower, upper), (2 * HALF,))
    offs = start + tl.arange(0, 2 * HALF)
    tl.store(out_ptr + offs, whole, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    programs = triton.cdiv(n, 2 * HALF)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, HALF=HALF)
    return out
