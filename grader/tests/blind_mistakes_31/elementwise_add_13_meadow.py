# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In elementwise_add, `ALIGNED=n % 16 == 0` drops the masks of elementwise_add_kernel wherever n is a multiple of 16, but only multiples of BLOCK = 1024 need no mask: for n = 48, 128, 256, 512, 1536 and so on the last program reads and writes past the end of x, y and out (the elements of out are right); it should be `n % BLOCK == 0`. (2) In elementwise_add, `return` for n = 0 gives None instead of `out`; it should be `return out`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl
from triton import cdiv

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    ALIGNED: tl.constexpr,
):
    """One block. Plain accesses of 16 bytes where that is possible, masked ones elsewhere."""
    pid = tl.program_id(axis=0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if ALIGNED:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        ok = offs < n
        x = tl.load(x_ptr + offs, mask=ok)
        y = tl.load(y_ptr + offs, mask=ok)
        tl.store(out_ptr + offs, x + y, mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if out is None:
        out = torch.empty_like(x)
    if n == 0:
        return
    elementwise_add_kernel[(cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, ALIGNED=n % 16 == 0)
    return out
