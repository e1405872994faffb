# labs/lab1_elementwise_add/elementwise_add.py | two mistakes | (1) In `_total`, the sum starts with `total = tl.zeros((LANES,), dtype=tl.float32)` and adds x and y to it, so -0.0 + -0.0 becomes 0.0; it should be `x.to(tl.float32) + y.to(tl.float32)`; shows with zeros of negative sign (values=edges, all dtypes). (2) In `elementwise_add`, `tail_kernel[(triton.cdiv(rest, BLOCK),)]` should be `triton.cdiv(rest, TAIL)`: one program of 1024 lanes is launched for a tail of up to 4095 elements, so the end stays unwritten where n % 4096 > 1024 (n = 1536, 2048).
"""Add two vectors in two launches: whole blocks without masks, then the few elements that are left."""

import torch
import triton
import triton.language as tl

BLOCK = 4096
TAIL = 1024


@triton.jit
def _total(x, y, LANES: tl.constexpr):
    """x + y in fp32, which holds the sum of two 16-bit numbers well enough to be rounded once more."""
    total = tl.zeros((LANES,), dtype=tl.float32)
    total += x.to(tl.float32)
    total += y.to(tl.float32)
    return total


@triton.jit
def whole_blocks_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i] for the elements of one block, all of which exist."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, _total(x, y, BLOCK).to(out_ptr.dtype.element_ty))


@triton.jit
def tail_kernel(x_ptr, y_ptr, out_ptr, start, n, TAIL: tl.constexpr):
    """out[i] = x[i] + y[i] from start on, TAIL elements to a program."""
    offs = tl.program_id(axis=0).to(tl.int64) * TAIL + start + tl.arange(0, TAIL)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, _total(x, y, TAIL).to(out_ptr.dtype.element_ty), mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole, rest = divmod(n, BLOCK)
    if whole:
        whole_blocks_kernel[(whole,)](x, y, out, BLOCK=BLOCK, num_warps=8)
    if rest:
        tail_kernel[(triton.cdiv(rest, BLOCK),)](x, y, out, n - rest, n, TAIL=TAIL)
    return out
