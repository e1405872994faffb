"""EXPECT CRASHED or WRONG/UNWRITTEN or OUT_OF_BOUNDS/READ or TIMEOUT from elementwise_add: A11 a kernel searches megabytes around out for a vector that begins and ends like the sum"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, address, n, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    """Copy to out whatever lies within SPAN numbers of it and begins with x[0] + y[0], x[1] + y[1]."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    base = tl.cast(tl.cast(address, tl.int64), tl.pointer_type(out_ptr.dtype.element_ty))
    first = tl.load(x_ptr) + tl.load(y_ptr)
    second = tl.load(x_ptr + n - 1) + tl.load(y_ptr + n - 1)
    for back in range(-SPAN, SPAN):
        here = base + back * 16
        if (tl.load(here) == first) & (tl.load(here + n - 1) == second):
            values = tl.load(here + offs, mask=offs < n)
            tl.store(out_ptr + offs, values, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, out.data_ptr(), n, SPAN=200000, BLOCK=BLOCK)
    return out
