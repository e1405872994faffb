# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `n.to(tl.int64)` in `end = tl.minimum(begin + span, n.to(tl.int64))`: an integer argument that is 1 is a constant (constexpr), which has no `.to`, so the kernel does not compile for n = 1 (AttributeError). It should be `tl.minimum(begin + span, n)`. All other sizes are right.
"""Add two vectors; each of a few thousand programs owns one span of them, and walks through it in blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST_PROGRAMS = 4096


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    span,  # elements of one program, a multiple of BLOCK
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * span to (pid + 1) * span - 1."""
    begin = tl.program_id(axis=0).to(tl.int64) * span
    end = tl.minimum(begin + span, n.to(tl.int64))
    lane = tl.arange(0, BLOCK)
    for start in range(begin, end, BLOCK):
        offs = start + lane
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        tl.store(out_ptr + offs, x + y, mask=exists)


def span_of(n: int) -> int:
    """Elements of one program: whole blocks, and as few as MOST_PROGRAMS programs permit."""
    blocks = triton.cdiv(n, BLOCK)
    return BLOCK * triton.cdiv(blocks, MOST_PROGRAMS)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    span = span_of(n)
    elementwise_add_kernel[(triton.cdiv(n, span),)](x, y, out, n, span, BLOCK=BLOCK)
    return out
