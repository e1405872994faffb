# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `block = tl.interleave(front, back)` alternates the lanes of both halves instead of putting them one after the other; it should be `tl.join(front, back).permute(1, 0).reshape(2 * HALF)`, or two stores. All sizes but n = 1 are wrong in all dtypes (element 1 is the sum at HALF, and so on; for small n every second element holds what a masked lane has).
"""Add two vectors: a program owns a block of two halves and stores both of them at once."""

import torch
import triton
import triton.language as tl

HALF = 1024


@triton.jit
def _sum_at(x_ptr, y_ptr, offs, n):
    """x + y at the offsets that exist; what the other lanes hold is never stored."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    return x + y


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    HALF: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements 2 * pid * HALF to 2 * (pid + 1) * HALF - 1.

    The four loads of a program are independent, so all of them are in flight before the first addition.
    """
    start = tl.program_id(axis=0).to(tl.int64) * (2 * HALF)
    lanes = tl.arange(0, HALF)
    front = _sum_at(x_ptr, y_ptr, start + lanes, n)
    back = _sum_at(x_ptr, y_ptr, start + HALF + lanes, n)

    # One block of 2 * HALF lanes: the front half, then the back half.
    block = tl.interleave(front, back)
    offs = start + tl.arange(0, 2 * HALF)
    tl.store(out_ptr + offs, block, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        programs = triton.cdiv(n, 2 * HALF)
        elementwise_add_kernel[(programs,)](x, y, out, n, HALF=HALF)
    return out
