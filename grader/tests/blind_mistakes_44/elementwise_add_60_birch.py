# labs/lab1_elementwise_add/elementwise_add.py | contract | In `wide_load`, `mask=offs < reach` with `reach = triton.cdiv(n, GROUP) * GROUP` (host) lets the loads of x and y read up to 15 elements behind the end; the mask should be `offs < n`. The sums are right, but memory behind the inputs is read ("neither read nor written"); shows where n is no multiple of 16.
"""Add two vectors with accesses of 16 bytes, whatever the length is."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
GROUP = 16  # the compiler joins loads into wide ones if the mask changes only at multiples of this


@triton.jit
def wide_load(ptr, offs, reach):
    """Load with a mask that is constant inside of a group of lanes."""
    return tl.load(ptr + offs, mask=offs < reach, eviction_policy="evict_first")


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    reach,  # n, rounded up to whole groups
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    x = wide_load(x_ptr, offs, reach)
    y = wide_load(y_ptr, offs, reach)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        reach = triton.cdiv(n, GROUP) * GROUP
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, reach, BLOCK=BLOCK)
    return out
