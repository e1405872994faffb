# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) in elementwise_add_kernel, inside = lanes < n is computed once, for the first of the PARTS parts, and used for all of them, so parts past the end are read and written (n that is no multiple of BLOCK * PARTS = 2048; the numbers inside are right); it should be here < n in each part; (2) in elementwise_add, n == 0 does a bare return, so None comes back in place of out; it should be return out
"""Add two vectors: a program owns a few blocks that follow one another."""

import torch
import triton
import triton.language as tl

BLOCK = 512
PARTS = 4


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns PARTS blocks from element pid * PARTS * BLOCK on."""
    base = tl.program_id(0).to(tl.int64) * (BLOCK * PARTS)
    lanes = base + tl.arange(0, BLOCK)
    inside = lanes < n
    for part in tl.static_range(PARTS):
        here = lanes + part * BLOCK
        a = tl.load(x_ptr + here, mask=inside)
        b = tl.load(y_ptr + here, mask=inside)
        tl.store(out_ptr + here, a + b, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if n == 0:
        return
    if out is None:
        out = torch.empty_like(x)
    programs = triton.cdiv(n, BLOCK * PARTS)
    elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK, PARTS=PARTS)
    return out
