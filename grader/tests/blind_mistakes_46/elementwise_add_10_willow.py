# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add`, the rest after the whole blocks of BLOCK = 2048 goes to one program of TAIL = 1024 lanes: `rest_kernel[(1,)](x, y, out, done, n, TAIL=TAIL)` with `TAIL = 1024`. It should be `(triton.cdiv(n - done, TAIL),)` programs with an offset, or TAIL = BLOCK. Elements past the first 1024 of the rest stay unwritten, only where n % 2048 > 1024, as at n = 1536.
"""Add two vectors: whole blocks in one launch without masks, the rest in a second launch."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
TAIL = 1024


@triton.jit
def whole_blocks_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Program pid owns a block of which every element exists."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + lane)
    y = tl.load(y_ptr + start + lane)
    tl.store(out_ptr + start + lane, x + y)


@triton.jit
def rest_kernel(x_ptr, y_ptr, out_ptr, done, n, TAIL: tl.constexpr):
    """One program for the elements from `done` on."""
    offs = done + tl.arange(0, TAIL)
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
    blocks = n // BLOCK
    done = blocks * BLOCK
    if blocks > 0:
        whole_blocks_kernel[(blocks,)](x, y, out, BLOCK=BLOCK, num_warps=8)
    if done < n:
        rest_kernel[(1,)](x, y, out, done, n, TAIL=TAIL)
    return out
