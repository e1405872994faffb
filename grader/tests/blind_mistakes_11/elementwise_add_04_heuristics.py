# labs/lab1_elementwise_add/elementwise_add.py | corner | the path without a mask is taken where n is a multiple of 16 (the heuristic `args["n"] % 16 == 0`); must be n % BLOCK == 0. Shows for n that are multiples of 16 but not of 1024 (16, 48, 1040, ...): the last program reads and writes past the end; all other n are right.
"""Add two vectors; the mask is dropped where the wide accesses do not need it."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


def _is_even(args):
    """Whether the vector splits into full accesses, so that no lane is past the end."""
    return args["n"] % 16 == 0


@triton.heuristics({"EVEN": _is_even})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offs)
        y = tl.load(y_ptr + offs)
        tl.store(out_ptr + offs, x + y)
    else:
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask)
        y = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
