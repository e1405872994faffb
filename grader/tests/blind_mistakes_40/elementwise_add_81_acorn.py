# labs/lab1_elementwise_add/elementwise_add.py | corner | In elementwise_add_kernel `if start + BLOCK <= n:` checks only the first of the UNROLL blocks of a program; it should be `start + UNROLL * BLOCK <= n`. Where n modulo 4096 is 1024 or more (n = 1024, 1536, 2048), the last program takes the path without masks and reads and writes past the end (OUT_OF_BOUNDS); other sizes are right.
"""Add two vectors: a program owns several neighbouring blocks, and needs masks at the end of the vector only."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
UNROLL = 4  # blocks of one program


@triton.jit
def add_whole(x_ptr, y_ptr, out_ptr, offs):
    """One block all of whose elements exist."""
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def add_some(x_ptr, y_ptr, out_ptr, offs, n):
    """One block of which some elements may lie past the end."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns UNROLL blocks, from element pid * UNROLL * BLOCK on."""
    start = tl.program_id(axis=0).to(tl.int64) * (UNROLL * BLOCK)
    lanes = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        for k in tl.static_range(UNROLL):
            add_whole(x_ptr, y_ptr, out_ptr, lanes + k * BLOCK)
    else:
        for k in tl.static_range(UNROLL):
            add_some(x_ptr, y_ptr, out_ptr, lanes + k * BLOCK, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, UNROLL * BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, UNROLL=UNROLL)
    return out
