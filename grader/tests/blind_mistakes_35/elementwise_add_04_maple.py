# labs/lab1_elementwise_add/elementwise_add.py | right | right
"""Add two vectors. Where the blocks divide n, a variant without any mask is compiled."""

import torch
import triton
import triton.language as tl

BYTES_PER_BLOCK = 4096


@triton.jit
def _read(ptr, offs, n, EVEN: tl.constexpr):
    if EVEN:
        block = tl.load(ptr + offs)
    else:
        block = tl.load(ptr + offs, mask=offs < n)
    return block


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    offs = first + tl.arange(0, BLOCK)
    total = _read(x_ptr, offs, n, EVEN) + _read(y_ptr, offs, n, EVEN)
    if EVEN:
        tl.store(out_ptr + offs, total)
    else:
        tl.store(out_ptr + offs, total, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    # 1024 numbers in fp32, 2048 in fp16 and bf16: the same bytes for a program.
    block = BYTES_PER_BLOCK // x.element_size()
    full, rest = divmod(n, block)
    programs = full if rest == 0 else full + 1
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=block, EVEN=rest == 0)
    return out
