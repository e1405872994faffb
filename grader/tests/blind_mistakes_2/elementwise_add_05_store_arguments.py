# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel, tl.store: value and mask are exchanged (pointer, mask, value), so the sum is taken as mask and is not boolean | "store the sum where exists"; every n above 0: the kernel does not compile
"""out = x + y"""

import torch
import triton
import triton.language as tl

BLOCK = 4096


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    a = tl.load(x_ptr + offs, exists)
    b = tl.load(y_ptr + offs, exists)
    tl.store(out_ptr + offs, exists, a + b)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
