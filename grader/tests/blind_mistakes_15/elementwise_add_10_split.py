# labs/lab1_elementwise_add/elementwise_add.py | corner | The launch of the tail stands under elif rest, so it is left out whenever there is a whole block: for n above 1024 that is no multiple of 1024 the last partial block is never written. It should be a second if.
"""Two kernels: one for the whole blocks, which needs no mask, and one for the elements behind them."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def whole_blocks_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def tail_kernel(x_ptr, y_ptr, out_ptr, start, rest, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    mask = lanes < rest
    x = tl.load(x_ptr + start + lanes, mask=mask)
    y = tl.load(y_ptr + start + lanes, mask=mask)
    tl.store(out_ptr + start + lanes, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y, written to `out` where one is given; a vector of no elements launches nothing."""
    if out is None:
        out = torch.empty_like(x)
    full, rest = divmod(x.numel(), BLOCK)
    if full:
        whole_blocks_kernel[(full,)](x, y, out, BLOCK=BLOCK)
    elif rest:
        tail_kernel[(1,)](x, y, out, full * BLOCK, rest, BLOCK=BLOCK)
    return out
