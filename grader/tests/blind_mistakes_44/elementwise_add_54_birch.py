# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, `start = (tl.program_id(axis=0) * span).to(tl.int64)` multiplies in int32 and converts afterwards; it should be `tl.program_id(axis=0).to(tl.int64) * span`. Shows only for n > 2^31: the start wraps to a negative number, which passes the mask, so loads and stores lie before the tensors and the elements from 2^31 on are unwritten.
"""Add two vectors: each program adds several neighbouring blocks in an unrolled loop."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
BLOCKS_A_PROGRAM = 4


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, offs, n):
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    COUNT: tl.constexpr,  # blocks of one program
):
    """out[i] = x[i] + y[i]; program pid owns COUNT * BLOCK elements in a row."""
    span: tl.constexpr = BLOCK * COUNT
    # Long vectors have more elements than an int32 can count.
    start = (tl.program_id(axis=0) * span).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    for k in tl.static_range(COUNT):
        add_block(x_ptr, y_ptr, out_ptr, start + k * BLOCK + lanes, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["COUNT"]),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, COUNT=BLOCKS_A_PROGRAM)
    return out
