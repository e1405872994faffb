# labs/lab1_elementwise_add/elementwise_add.py | error | In `load_once`, `cache_modifier=".cs"` does not exist for `tl.load` (only `.ca`, `.cg`, `.cv`; `.cs` is for stores), so the kernel does not compile: ValueError "Cache modifier .cs not supported". It should be left out, or `.cg`. In all cases but n = 0.
"""Add two vectors; every element is used once, so loads and stores stream through the caches."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
WARPS = 8


@triton.jit
def load_once(ptr, offs, exists):
    """A block that nobody reads again."""
    return tl.load(ptr + offs, mask=exists, cache_modifier=".cs")


@triton.jit
def streaming_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n
    x = load_once(x_ptr, offs, exists)
    y = load_once(y_ptr, offs, exists)
    tl.store(out_ptr + offs, x + y, mask=exists, cache_modifier=".cs")


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n != 0:
        streaming_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=WARPS)
    return out
