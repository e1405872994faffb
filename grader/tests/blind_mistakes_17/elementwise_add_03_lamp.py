# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) elementwise_add: the blocks of each program are blocks // programs, rounded down, so above 64 * 512 elements the last blocks are never written unless the number of blocks is a multiple of 64; it should be triton.cdiv(blocks, programs). (2) elementwise_add_kernel: fp16 sums are clamped to +-65504, so results that should be inf, -inf or NaN come out finite; the sum should be stored as it is.
"""Add two vectors with a fixed number of programs, each with a run of neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 512
MAX_PROGRAMS = 64


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, blocks_each, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program k has blocks k * blocks_each to (k + 1) * blocks_each - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * blocks_each * BLOCK
    offs = start + tl.arange(0, BLOCK)
    for _ in range(0, blocks_each):
        live = offs < n
        a = tl.load(x_ptr + offs, mask=live, other=0.0).to(tl.float32)
        b = tl.load(y_ptr + offs, mask=live, other=0.0).to(tl.float32)
        total = a + b
        if out_ptr.dtype.element_ty == tl.float16:
            # fp16 ends at 65504
            total = tl.minimum(tl.maximum(total, -65504.0), 65504.0)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=live)
        offs += BLOCK


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    if blocks > 0:
        programs = min(blocks, MAX_PROGRAMS)
        elementwise_add_kernel[(programs,)](x, y, out, n, blocks // programs, BLOCK=BLOCK)
    return out
