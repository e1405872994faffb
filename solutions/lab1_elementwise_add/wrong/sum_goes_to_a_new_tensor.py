"""EXPECT WRONG/UNWRITTEN from elementwise_add, hint 4: S34 the result is returned, and out stays as it was"""

import torch
import triton
import triton.language as tl


@triton.jit
def triton_add(x_ptr, y_ptr, z_ptr, n_elements, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid.to(tl.int64) * BLOCK
    offsets = block_start + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(z_ptr + offsets, x + y, mask=mask)


def elementwise_add(x, y, *, out=None):
    z = torch.empty_like(x)
    n_elements = z.numel()
    if n_elements > 0:
        grid = (triton.cdiv(n_elements, 1024),)
        triton_add[grid](x, y, z, n_elements, BLOCK=1024)
    return z
