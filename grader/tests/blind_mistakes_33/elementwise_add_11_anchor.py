# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add lets the kernel store into `sums = out.view(-1).to(torch.float32)`; for fp32 that is out itself, but for fp16 and bf16 .to makes a copy, and out stays unwritten; shows for fp16 and bf16 with n > 0, whether out is passed or not; the kernel should get out itself (the store converts to its dtype)
"""Add two vectors in fp32 arithmetic, whatever their dtype."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    a_ptr,
    b_ptr,
    sums_ptr,
    count,
    BLOCK: tl.constexpr,
):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lanes = start + tl.arange(0, BLOCK)
    valid = lanes < count
    a = tl.load(a_ptr + lanes, mask=valid).to(tl.float32)
    b = tl.load(b_ptr + lanes, mask=valid).to(tl.float32)
    tl.store(sums_ptr + lanes, a + b, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    count = out.numel()
    if count == 0:
        return out

    sums = out.view(-1).to(torch.float32)
    programs = triton.cdiv(count, BLOCK)
    elementwise_add_kernel[(programs,)](x.view(-1), y.view(-1), sums, count, BLOCK=BLOCK)
    return out
