# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) tail_kernel: the mask compares the global offsets, from start on, with the length of the rest, so for n > BLOCK the tail (nearly) always stays unwritten; it must be offs < n (or the lane number < rest). (2) elementwise_add: for n = 0 a bare return gives None; it must return out.
import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def bulk_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """only full blocks, no mask at all"""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + tl.load(y_ptr + offs))


@triton.jit
def tail_kernel(x_ptr, y_ptr, out_ptr, start, rest, BLOCK: tl.constexpr):
    """the rest, in one program"""
    offs = tl.cast(start, tl.int64) + tl.arange(0, BLOCK)
    mask = offs < rest
    x = tl.load(x_ptr + offs, mask=mask)
    y = tl.load(y_ptr + offs, mask=mask)
    tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return
    full, rest = divmod(n, BLOCK)
    if full > 0:
        bulk_kernel[(full,)](x, y, out, BLOCK=BLOCK)
    if rest > 0:
        tail_kernel[(1,)](x, y, out, full * BLOCK, rest, BLOCK=BLOCK)
    return out
