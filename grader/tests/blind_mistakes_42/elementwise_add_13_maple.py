# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `end = n.to(tl.int64)`: an integer argument that is 1 is a constant and has no `.to`, so n = 1 does not compile. It should be `end = n` or another way without a method of n, such as comparing with n directly or `tl.cast`/`tl.full`. Only n = 1 fails; every other size is right.
"""Add two vectors: a limited number of programs, each of which walks through the vector."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 2112  # 16 for each of 132 multiprocessors


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """Program pid takes the blocks pid, pid + programs, pid + 2 * programs and so on."""
    # Everything that counts elements has 64 bits, the end as well.
    end = n.to(tl.int64)
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)

    for first in range(begin, end, step):
        offs = first + lane
        inside = offs < end
        x = tl.load(x_ptr + offs, mask=inside)
        y = tl.load(y_ptr + offs, mask=inside)
        tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    assert x.shape == y.shape, f"x has {x.numel()} elements, y has {y.numel()}"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    programs = min(blocks, MOST_PROGRAMS)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
