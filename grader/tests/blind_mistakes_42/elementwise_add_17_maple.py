# labs/lab1_elementwise_add/elementwise_add.py | contract | In `elementwise_add`, `groups_end = triton.cdiv(n, GROUP) * GROUP` is the end for the masks of both loads (`_fetch(x_ptr, offs, groups_end)`, `_fetch(y_ptr, offs, groups_end)`); it must be n. Where n is no multiple of 16, up to 15 elements behind x and behind y are read: out of bounds, although all results are right (the store is masked with n).
"""Add two vectors: loads and store in blocks of one program each, counted in groups of 16."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GROUP = 16  # the compiler specialises a kernel for numbers that are multiples of 16


@triton.jit
def _fetch(ptr, offs, end):
    return tl.load(ptr + offs, mask=offs < end, other=0.0)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    groups_end,  # where the last group of the vector ends
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = _fetch(x_ptr, offs, groups_end)
    y = _fetch(y_ptr, offs, groups_end)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    assert x.dtype == y.dtype, f"x is {x.dtype}, y is {y.dtype}"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        groups_end = triton.cdiv(n, GROUP) * GROUP
        programs = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[(programs,)](x, y, out, n, groups_end, BLOCK=BLOCK, num_warps=4)
    return out
