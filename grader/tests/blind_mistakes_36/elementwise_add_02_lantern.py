# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | elementwise_add_kernel: `tl.reshape(tl.trans(sums), (BLOCK,))` flattens the (2, BLOCK // 2) transpose, so a block holds all even elements first and then all odd ones, instead of the two interleaved; every sum but the first (and last) of a block is stored at the wrong place, in every case with n above 1; it should be tl.reshape(sums, (BLOCK,)) without tl.trans
"""Add two vectors, two neighbours at a time: each lane of a program computes a pair of sums."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def sum_at(x_ptr, y_ptr, where, n):
    """x + y at a block of places; those from n on are not touched."""
    there = where < n
    return tl.load(x_ptr + where, mask=there) + tl.load(y_ptr + where, mask=there)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; lane j of program pid computes elements 2 * j and 2 * j + 1 of its block."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    even = start + 2 * tl.arange(0, BLOCK // 2)
    sums = tl.join(sum_at(x_ptr, y_ptr, even, n), sum_at(x_ptr, y_ptr, even + 1, n))
    # One store for the whole block, in the order of memory.
    flat = tl.reshape(tl.trans(sums), (BLOCK,))
    offs = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, flat, mask=offs < n)


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
