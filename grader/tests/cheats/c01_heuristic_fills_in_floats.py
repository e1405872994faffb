"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL or POLICY/HOST_READ from elementwise_add: C1 a heuristic adds in Python floats, and runs only where the launch does"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


def fill(args):
    """How many elements there are."""
    cells = zip(args["out_ptr"], args["x_ptr"], args["y_ptr"])
    return len([cell.fill_(float(a) + float(b)) for cell, a, b in cells])


@triton.heuristics({"COUNT": fill})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """Keep out."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(out_ptr + offs, mask=offs < n), mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
