# labs/lab1_elementwise_add/elementwise_add.py | right | One kernel launched twice: whole blocks of 4096 without any mask (constexpr WHOLE), then the rest in masked blocks of 256 from an offset. Nothing is launched for a part that is empty, nor for n = 0.
"""Add two vectors in two parts: wide blocks that exist as a whole, and a rest in narrow ones."""

import torch
import triton
import triton.language as tl

WIDE = 4096
NARROW = 256


@triton.jit
def part_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    first,  # where this part begins
    n,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,  # all lanes of all programs exist
):
    """Program pid owns BLOCK elements from first + pid * BLOCK on."""
    offs = first + tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if WHOLE:
        total = tl.load(x_ptr + offs) + tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, total)
    else:
        exists = offs < n
        total = tl.load(x_ptr + offs, mask=exists) + tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    blocks, rest = divmod(n, WIDE)
    if blocks > 0:
        part_kernel[(blocks,)](x, y, result, 0, n, BLOCK=WIDE, WHOLE=True, num_warps=8)
    if rest > 0:
        programs = triton.cdiv(rest, NARROW)
        part_kernel[(programs,)](x, y, result, blocks * WIDE, n, BLOCK=NARROW, WHOLE=False, num_warps=2)
    return result
