# labs/lab1_elementwise_add/elementwise_add.py | corner | In the host function `elementwise_add`, the grid of the second launch, `(triton.cdiv(rest, BLOCK),)`, should be `(triton.cdiv(rest, TAIL),)`: rest < BLOCK, so there is always one program of TAIL = 256 elements. It shows only where n % 2048 > 256 (n = 512, 1009, 1024, 1536): the elements after the first 256 of the remainder stay unwritten.
"""Add two vectors: whole blocks in one launch without masks, and what is left over in a second one."""

import torch
import triton
import triton.language as tl

BLOCK = 2048  # elements of a program where the vector is whole
TAIL = 256  # elements of a program behind the last whole block


@triton.jit
def whole_blocks_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i] for one block, all of whose elements exist."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def tail_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    begin,  # the first element that no whole block has
    n,
    TILE: tl.constexpr,
):
    """out[i] = x[i] + y[i] from `begin` on, TILE elements a program."""
    offs = begin + tl.program_id(axis=0).to(tl.int64) * TILE + tl.arange(0, TILE)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    whole, rest = divmod(n, BLOCK)
    if whole > 0:
        whole_blocks_kernel[(whole,)](x, y, out, BLOCK=BLOCK, num_warps=8)
    if rest > 0:
        tail_kernel[(triton.cdiv(rest, BLOCK),)](x, y, out, whole * BLOCK, n, TILE=TAIL, num_warps=2)
    return out
