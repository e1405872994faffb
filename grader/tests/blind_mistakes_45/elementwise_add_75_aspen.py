# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add`, `if n > BLOCK:` should be `if n >= BLOCK:` (or `if blocks > 0:`). For n = 2048, exactly one block, neither kernel is launched and `out` stays unwritten; all other sizes are right.
"""Add two vectors: one launch for the whole blocks, without a mask, and one for the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def body_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i] for block number pid, all of whose elements exist."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def rest_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    first,
    count,
    WIDTH: tl.constexpr,
):
    """out[i] = x[i] + y[i] for the `count` elements from `first` on; one program, count <= WIDTH."""
    lanes = tl.arange(0, WIDTH)
    exists = lanes < count
    x = tl.load(x_ptr + first + lanes, mask=exists)
    y = tl.load(y_ptr + first + lanes, mask=exists)
    tl.store(out_ptr + first + lanes, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    blocks, rest = divmod(n, BLOCK)
    if n > BLOCK:
        body_kernel[(blocks,)](x, y, out, BLOCK=BLOCK)
    if rest > 0:
        width = triton.next_power_of_2(rest)
        rest_kernel[(1,)](x, y, out, n - rest, rest, WIDTH=width)
    return out
