# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `fused_sum`, `tl.fma(x.to(tl.float32), y.to(tl.float32), one)` computes x * y + 1; it should be `tl.fma(x.to(tl.float32), one, y.to(tl.float32))`. Every element is wrong in all sizes and dtypes.
"""Add two vectors: several blocks per program, one fused instruction per element."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
UNROLL = 2


@triton.jit
def fused_sum(x, y, BLOCK: tl.constexpr):
    """The sum in fp32, which holds numbers of all three dtypes."""
    one = tl.full((BLOCK,), 1.0, tl.float32)
    return tl.fma(x.to(tl.float32), y.to(tl.float32), one)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """Program pid owns UNROLL blocks that follow one another."""
    first = tl.program_id(axis=0).to(tl.int64) * (BLOCK * UNROLL)
    lanes = tl.arange(0, BLOCK)
    for step in tl.static_range(UNROLL):
        offs = first + step * BLOCK + lanes
        exists = offs < n
        x = tl.load(x_ptr + offs, mask=exists)
        y = tl.load(y_ptr + offs, mask=exists)
        total = fused_sum(x, y, BLOCK)
        tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = (triton.cdiv(n, BLOCK * UNROLL),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, UNROLL=UNROLL)
    return out
