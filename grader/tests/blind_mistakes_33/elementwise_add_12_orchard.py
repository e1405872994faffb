# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Elementwise add: each program adds a few blocks, and only the last program needs masks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
COUNT = 2


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """Program pid owns COUNT blocks in a row, starting with block pid * COUNT."""
    start = tl.program_id(axis=0).to(tl.int64) * (BLOCK * COUNT)
    # From here on element 0 is the first one of this program, and `left` is how many follow from it to the end.
    x_ptr += start
    y_ptr += start
    out_ptr += start
    left = n - start
    lane = tl.arange(0, BLOCK)

    if left >= BLOCK * COUNT:
        for k in tl.static_range(COUNT):
            at = k * BLOCK + lane
            tl.store(out_ptr + at, tl.load(x_ptr + at) + tl.load(y_ptr + at))
    else:
        for k in tl.static_range(COUNT):
            at = k * BLOCK + lane
            some = at < left
            tl.store(out_ptr + at, tl.load(x_ptr + at, mask=some) + tl.load(y_ptr + at, mask=some), mask=some)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    if (n := x.numel()) > 0:
        full, rest = divmod(n, BLOCK * COUNT)
        programs = full + 1 if rest else full
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, COUNT=COUNT)
    return out
