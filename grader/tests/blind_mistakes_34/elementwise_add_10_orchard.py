# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | in elementwise_add, the launch passes (x, y, out, ...) to a kernel whose parameters are (dst_ptr, a_ptr, b_ptr, ...), so y + out is stored into x: x is overwritten and out stays unwritten (every n >= 1, all dtypes); the launch should pass (out, x, y, ...)
"""dst = a + b for vectors."""

import torch
import triton
import triton.language as tl

BYTES_PER_BLOCK = 4096  # of one vector


@triton.jit
def span(n, BLOCK: tl.constexpr):
    """Offsets of this program, and which of them exist."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def elementwise_add_kernel(dst_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    offs, mask = span(n, BLOCK)
    a = tl.load(a_ptr + offs, mask=mask)
    b = tl.load(b_ptr + offs, mask=mask)
    tl.store(dst_ptr + offs, a + b, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    block = BYTES_PER_BLOCK // x.element_size()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out
