"""EXPECT PASS from elementwise_add: tensor descriptors that the host makes, so bounds need no mask."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK = 1024


@triton.jit
def add_described_kernel(x_desc, y_desc, out_desc, BLOCK: tl.constexpr):
    start = tl.program_id(axis=0) * BLOCK
    # A descriptor knows its length: lanes past it load zero, and their stores are dropped.
    x = x_desc.load([start])
    y = y_desc.load([start])
    out_desc.store([start], x + y)


def describe(vector):
    return TensorDescriptor(vector, shape=[vector.numel()], strides=[1], block_shape=[BLOCK])


def elementwise_add(x, y, *, out=None):
    """x + y for contiguous vectors; the device reads and writes through its tensor memory unit."""
    if out is None:
        out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    grid = (triton.cdiv(x.numel(), BLOCK),)
    add_described_kernel[grid](describe(x), describe(y), describe(out), BLOCK=BLOCK, num_warps=4)
    return out
