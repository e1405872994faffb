# labs/lab1_elementwise_add/elementwise_add.py | error | if offs < n: asks one condition of a block of BLOCK lanes, as a thread of CUDA would; Triton cannot take a block as a condition, so it does not compile; the interpreter takes the block as true, and reads and writes past the end where n is no multiple of BLOCK. It must be mask=offs < n in the loads and in the store.
"""out = x + y. A few programs stride over the whole vector, as a grid-stride loop in CUDA does."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
MOST = 2048  # programs


@triton.jit
def add_stride_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    step = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    for low in range(pid * BLOCK, n, step):
        offs = low + tl.arange(0, BLOCK)
        if offs < n:
            s = tl.load(x_ptr + offs) + tl.load(y_ptr + offs)
            tl.store(out_ptr + offs, s)


def elementwise_add(x, y, *, out=None):
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = min(triton.cdiv(n, BLOCK), MOST)
    if programs > 0:
        add_stride_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
