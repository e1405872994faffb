# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `return torch.empty_like(x)` for n = 0 comes before `out` is looked at: with n = 0 and `out` given, a new tensor is returned in place of `out`. It should make a new tensor only if `out is None` and return `out` for n = 0. All cases with elements, and n = 0 without `out`, are right.
"""Add two vectors: whole blocks take a path without a mask, the last one a path with it."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WARPS = 4


@triton.jit
def add_whole(x_ptr, y_ptr, out_ptr, offs):
    x = tl.load(x_ptr + offs)
    y = tl.load(y_ptr + offs)
    tl.store(out_ptr + offs, x + y)


@triton.jit
def add_partial(x_ptr, y_ptr, out_ptr, offs, n):
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
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    # All threads of a program take the same branch.
    if start + BLOCK <= n:
        add_whole(x_ptr, y_ptr, out_ptr, offs)
    else:
        add_partial(x_ptr, y_ptr, out_ptr, offs, n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    n = x.numel()
    if n == 0:
        return torch.empty_like(x)  # an empty grid cannot be launched
    if out is None:
        out = torch.empty_like(x)
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
