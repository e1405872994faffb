# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `tl.store(out_ptr + here, x_now + y_next, mask=here < n)` adds the prefetched next block of y; it should be `x_now + y_now`. Wrong for all n >= 1: where a program has only one block, `y_next` is masked, so out is x alone (x + 0 in the interpreter, undefined on a GPU).
"""Add two vectors with a fixed number of programs, each of which loads one block ahead of its stores."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PROGRAMS = 132 * 16


@triton.jit
def load_block(ptr, offs, n):
    """The elements at offs, as far as they exist."""
    return tl.load(ptr + offs, mask=offs < n)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    hop = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)

    # The first block of this program is in flight before the loop begins.
    x_now = load_block(x_ptr, start + lanes, n)
    y_now = load_block(y_ptr, start + lanes, n)
    for first in range(start, n, hop):
        here = first + lanes
        ahead = here + hop
        # Ask for the next block early; past the end the mask is false in all lanes.
        x_next = load_block(x_ptr, ahead, n)
        y_next = load_block(y_ptr, ahead, n)
        tl.store(out_ptr + here, x_now + y_next, mask=here < n)
        x_now = x_next
        y_now = y_next


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        elementwise_add_kernel[(min(blocks, PROGRAMS),)](x, y, out, n, BLOCK=BLOCK)
    return out
