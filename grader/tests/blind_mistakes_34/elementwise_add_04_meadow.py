# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add, programs = min(n // BLOCK, WAVES) is 0 for 1 <= n < BLOCK = 1024, so nothing is launched and out stays unwritten; it should be triton.cdiv(n, BLOCK); (2) in elementwise_add_kernel, the sum starts from acc = tl.zeros(...), so -0.0 + -0.0 gives 0.0 in place of -0.0 (any dtype, where both are -0.0); it should be x + y alone
"""Add two vectors; each program strides over the blocks of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WAVES = 16384


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; grid-stride loop, added in fp32 and rounded once at the store."""
    first = tl.program_id(axis=0).to(tl.int64) * BLOCK
    step = tl.num_programs(axis=0) * BLOCK
    for start in range(first, n, step):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        acc += tl.load(x_ptr + offs, mask=mask).to(tl.float32)
        acc += tl.load(y_ptr + offs, mask=mask).to(tl.float32)
        tl.store(out_ptr + offs, acc.to(out_ptr.dtype.element_ty), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = min(n // BLOCK, WAVES)
    if programs > 0:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
