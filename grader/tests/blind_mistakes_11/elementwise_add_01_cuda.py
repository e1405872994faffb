# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | the distance between the elements of neighbouring lanes is BLOCK (`offs = pid + lanes * BLOCK`), which is right only with exactly BLOCK programs; must be pid * BLOCK + lanes, or lanes * tl.num_programs(0). Shows for every n > 1: with one program only element 0 is stored, with fewer than BLOCK programs gaps stay unwritten, with more than BLOCK programs elements are written twice and the end never.
"""Vector addition. Written the way I know it from CUDA: program p takes every so-many-th element."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; lane l of program p owns one element, and all lanes together own all of them."""
    pid = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    # Lanes are spread over the whole vector, so that each program gets a fair share of the tail.
    offs = pid + lanes * BLOCK
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype; the sum goes to `out` where one is given."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
