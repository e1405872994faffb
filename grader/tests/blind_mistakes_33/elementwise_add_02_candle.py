# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel loads the next block of y into `b` (`b = tl.load(y_ptr + ahead, ...)`) before the current block is added and stored, so each block of x meets the block of y one step of the loop later; in the last step of a program that block is masked (0 in the interpreter), so out equals x there; shows for every n > 0 (with up to 512 * 1024 elements the whole result is x); it should be loaded into a variable of its own, as next_a is, and assigned to b after the store
"""Elementwise add with a limited number of programs, each of which walks through the vectors."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 512


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Program pid owns the blocks pid, pid + programs, pid + 2 * programs, ...

    The loads of the next block are issued before the current one is stored.
    """
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    stride = tl.num_programs(axis=0).to(tl.int64) * BLOCK

    here = first + tl.arange(0, BLOCK)
    a = tl.load(x_ptr + here, mask=here < n)
    b = tl.load(y_ptr + here, mask=here < n)

    while first < n:
        ahead = here + stride
        next_a = tl.load(x_ptr + ahead, mask=ahead < n)
        b = tl.load(y_ptr + ahead, mask=ahead < n)
        tl.store(out_ptr + here, a + b, mask=here < n)
        a = next_a
        here = ahead
        first += stride


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)

    n = x.numel()
    if n == 0:
        return out

    programs = min(triton.cdiv(n, BLOCK), MOST_PROGRAMS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
