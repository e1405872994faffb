# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `rest_kernel`, `y = tl.load(y_ptr + lane, mask=exists)` lacks the offset, it must be `y_ptr + begin + lane`: the rest is wrong where n > 1024 is no multiple of 1024 (e.g. 1009 is right, 1536, 4099 and 65537 are wrong at the end). (2) In `elementwise_add`, `if n > BLOCK:` must be `n >= BLOCK` (or `blocks > 0`): for n = 1024 exactly nothing is launched and `out` is unwritten.
"""Add two vectors: one launch for whole blocks, a second one for the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WARPS = 4


@triton.jit
def whole_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Block number pid of the vector; all of its elements exist."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + lane)
    y = tl.load(y_ptr + start + lane)
    tl.store(out_ptr + start + lane, x + y)


@triton.jit
def rest_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    begin,  # elements before the rest
    rest,  # elements of the rest, less than BLOCK
    BLOCK: tl.constexpr,
):
    """The elements behind the last whole block; a single program."""
    lane = tl.arange(0, BLOCK)
    exists = lane < rest
    x = tl.load(x_ptr + begin + lane, mask=exists)
    y = tl.load(y_ptr + lane, mask=exists)
    tl.store(out_ptr + begin + lane, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks, rest = divmod(n, BLOCK)
    begin = blocks * BLOCK
    if n > BLOCK:
        whole_kernel[(blocks,)](x, y, out, BLOCK=BLOCK, num_warps=WARPS)
    if rest > 0:
        rest_kernel[(1,)](x, y, out, begin, rest, BLOCK=BLOCK, num_warps=WARPS)
    return out
