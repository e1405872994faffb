"""EXPECT PASS from elementwise_add: a fixed number of programs strides over the whole vector."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132 * 8  # eight for each multiprocessor of an H200


@triton.jit
def strided_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = x + y; program p owns blocks p, p + number of programs, and so on."""
    first = tl.program_id(0).to(tl.int64) * BLOCK
    step = tl.num_programs(0) * BLOCK
    for start in range(first, n, step):
        idx = start + tl.arange(0, BLOCK)
        inside = idx < n
        left = tl.load(x_ptr + idx, mask=inside)
        right = tl.load(y_ptr + idx, mask=inside)
        tl.store(out_ptr + idx, left + right, mask=inside)


def elementwise_add(x, y, *, out=None):
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    blocks = triton.cdiv(n, 2048)
    if blocks == 0:
        return out
    strided_add_kernel[(min(blocks, PROGRAMS),)](x, y, out, n, BLOCK=2048, num_warps=4)
    return out
