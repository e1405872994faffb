"""EXPECT OUT_OF_BOUNDS/WRITE from elementwise_add on a CPU: C10 the elements behind out are changed as integers and put back by the program that changed them"""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, bits_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    at = pid * BLOCK + tl.arange(0, BLOCK)
    mask = at < n + 16
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    y = tl.load(y_ptr + at, mask=mask, other=0.0)
    if pid == tl.num_programs(axis=0) - 1:
        behind = bits_ptr + n + tl.arange(0, 16)
        guard = tl.load(behind)
        tl.store(behind, guard ^ 0x5A5A)
        tl.debug_barrier()
        scratch = tl.load(behind, volatile=True)
        tl.debug_barrier()
        tl.store(behind, scratch ^ 0x5A5A)
    tl.store(out_ptr + at, tl.where(at < n, x + y, 0.0), mask=at < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        bits = out.view(torch.int32 if out.element_size() == 4 else torch.int16)
        add_kernel[(triton.cdiv(n, 1024),)](x, y, out, bits, n, BLOCK=1024)
    return out
