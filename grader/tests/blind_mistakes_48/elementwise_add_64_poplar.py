# labs/lab1_elementwise_add/elementwise_add.py | corner | In `elementwise_add_kernel`, the last program gets `n % BLOCK` as its number of elements, which is 0 where n is a multiple of BLOCK (1024); it should be `n - start`. For n = 1024, 2048, 4096, 8192, 2^28 and other multiples of 1024 the last block is unwritten; all other n are right.
"""Add two vectors: whole blocks need no mask, only the last program has one."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def add_whole(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    """Add BLOCK elements, all of which exist."""
    lane = tl.arange(0, BLOCK)
    tl.store(out_ptr + lane, tl.load(x_ptr + lane) + tl.load(y_ptr + lane))


@triton.jit
def add_some(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """Add the first `count` of BLOCK elements."""
    lane = tl.arange(0, BLOCK)
    real = lane < count
    x = tl.load(x_ptr + lane, mask=real)
    y = tl.load(y_ptr + lane, mask=real)
    tl.store(out_ptr + lane, x + y, mask=real)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0)
    last = tl.num_programs(axis=0) - 1
    # the pointers move to the block, in 64 bits; the lanes inside of it are small numbers
    start = pid.to(tl.int64) * BLOCK
    if pid < last:
        add_whole(x_ptr + start, y_ptr + start, out_ptr + start, BLOCK)
    else:
        add_some(x_ptr + start, y_ptr + start, out_ptr + start, n % BLOCK, BLOCK)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
