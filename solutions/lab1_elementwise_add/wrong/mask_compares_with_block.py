"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add, hint 2: S3 the mask compares offsets with BLOCK"""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.jit
def vector_add(
    x_ptr,
    y_ptr,
    out_ptr,
    BLOCK: tl.constexpr,
):
    lanes = tl.arange(0, BLOCK)
    # a block has BLOCK lanes, so lane numbers stay below it
    mask = lanes < BLOCK
    offs = tl.program_id(0).to(tl.int64) * BLOCK + lanes
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    programs = triton.cdiv(x.numel(), BLOCK_SIZE)
    if programs:
        vector_add[(programs,)](x, y, out, BLOCK=BLOCK_SIZE)
    return out
