# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) add_kernel: a program owns UNROLL * BLOCK elements but starts at pid * BLOCK, so programs overlap and the end stays unwritten for n > 4096; the start must be pid * BLOCK * UNROLL. (2) elementwise_add: a new out is torch.empty(n) in the default dtype fp32; it must have the dtype and device of x (torch.empty_like).
import torch
import triton
import triton.language as tl

BLOCK = 1024
UNROLL = 4


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    # four blocks for each program, so that loads overlap
    for u in tl.static_range(UNROLL):
        offs = start + u * BLOCK + tl.arange(0, BLOCK)
        m = offs < n
        tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=m) + tl.load(y_ptr + offs, mask=m), mask=m)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    n = x.size(0)
    if out is None:
        out = torch.empty(n)
    if n > 0:
        add_kernel[(triton.cdiv(n, BLOCK * UNROLL),)](x, y, out, n, BLOCK=BLOCK, UNROLL=UNROLL)
    return out
