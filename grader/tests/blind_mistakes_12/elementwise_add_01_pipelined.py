# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the offsets and the mask have already moved to the next block when the sum of the current block is stored, so every block lands one block too far and the first BLOCK elements stay unwritten; the store must use the old offsets and mask (store first, or keep them apart); shows at every n >= 1
"""Lab 1, elementwise add, with a small software pipeline: the next block is asked for before this one is stored."""

import torch
import triton
import triton.language as tl

BLOCK = 512
STEPS = 4


@triton.jit
def pipelined_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; a program walks over STEPS neighbouring blocks."""
    # int64, because n may be beyond 2^31
    offs = tl.program_id(axis=0).to(tl.int64) * (BLOCK * STEPS) + tl.arange(0, BLOCK)
    live = offs < n
    x = tl.load(x_ptr + offs, mask=live)
    y = tl.load(y_ptr + offs, mask=live)
    for _ in range(STEPS):
        # Prefetch: these loads are in flight while the sum is computed and stored.
        offs += BLOCK
        live = offs < n
        x_next = tl.load(x_ptr + offs, mask=live)
        y_next = tl.load(y_ptr + offs, mask=live)
        tl.store(out_ptr + offs, x + y, mask=live)
        x = x_next
        y = y_next


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK * STEPS),)
        pipelined_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS)
    return out
