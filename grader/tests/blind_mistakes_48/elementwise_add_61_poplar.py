# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `x_now = x_next` and `y_now = y_next` stand before `tl.store(out_ptr + offs, x_now + y_now, ...)`, so each turn stores the sum of the next block of the program at the place of the current one; the two assignments should come after the store. Wrong for all n >= 1: the last block of each program becomes 0 (everything, where n is at most 2048 blocks of 1024), the others get the sum of a later block.
"""Add two vectors: a fixed number of programs, and each of them loads its next block ahead."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 2048


@triton.jit
def fetch(ptr, offs, n):
    """The elements at `offs`, as far as there are any."""
    return tl.load(ptr + offs, mask=offs < n, other=0.0)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK

    # the first block is on its way before the loop begins
    x_now = fetch(x_ptr, start + lanes, n)
    y_now = fetch(y_ptr, start + lanes, n)

    while start < n:
        offs = start + lanes
        # ask for the block of the next turn; past the end this reads nothing
        ahead = offs + step
        x_next = fetch(x_ptr, ahead, n)
        y_next = fetch(y_ptr, ahead, n)

        x_now = x_next
        y_now = y_next
        tl.store(out_ptr + offs, x_now + y_now, mask=offs < n)
        start += step


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    programs = min(triton.cdiv(n, BLOCK), PROGRAMS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
