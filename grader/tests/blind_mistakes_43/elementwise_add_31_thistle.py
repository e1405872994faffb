# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `total += tl.load(operands[k - 1] + offs, mask=exists)` should have `operands[k]`: for k = 1 it loads x again, so the result is 2 * x and y is never read. Wrong for every n > 0, in all dtypes.
"""Add vectors: the operands are a tuple of pointers, and a program sums several blocks of them."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
PARTS = 2  # blocks of a program


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
    OPERANDS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns PARTS blocks, one after the other, from pid * PARTS * BLOCK on.

    The sum starts from the first operand and not from 0, so that two zeros keep their sign.
    """
    begin = tl.program_id(axis=0).to(tl.int64) * (PARTS * BLOCK)
    lanes = tl.arange(0, BLOCK)
    operands = (x_ptr, y_ptr)
    for part in tl.static_range(PARTS):
        offs = begin + part * BLOCK + lanes
        exists = offs < n
        total = tl.load(operands[0] + offs, mask=exists)
        for k in tl.static_range(1, OPERANDS):
            total += tl.load(operands[k - 1] + offs, mask=exists)
        tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    grid = (triton.cdiv(n, PARTS * BLOCK),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, PARTS=PARTS, OPERANDS=2, num_warps=4)
    return out
