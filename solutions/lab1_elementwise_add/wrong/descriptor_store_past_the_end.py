"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add, hint 2 on a GPU: S3 a descriptor stores whole 16 bytes"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, REPEAT: tl.constexpr):
    """Each program makes three descriptors once and uses them for REPEAT blocks in a row."""
    x_desc = tl.make_tensor_descriptor(x_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
    y_desc = tl.make_tensor_descriptor(y_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
    out_desc = tl.make_tensor_descriptor(out_ptr, shape=[n], strides=[1], block_shape=[BLOCK])
    first = tl.program_id(0) * BLOCK * REPEAT
    for i in range(REPEAT):
        at = first + i * BLOCK
        if at < n:
            out_desc.store([at], x_desc.load([at]) + y_desc.load([at]))


def scratch(size: int, alignment: int, stream: int | None):
    """Global memory for the descriptors of one launch."""
    return torch.empty(size, device="cuda", dtype=torch.int8)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        triton.set_allocator(scratch)
        add_kernel[(triton.cdiv(n, 4 * 2048),)](x, y, out, n, BLOCK=2048, REPEAT=4)
    return out
