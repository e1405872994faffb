# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `first = tl.program_id(axis=0) * BLOCK` is int32, and `first += stride` in the while loop makes it int64: Triton refuses a variable that changes its type in a loop ("Loop-carried variable first has initial type int32 but is re-assigned to int64"). It should be `tl.program_id(axis=0).to(tl.int64) * BLOCK`. The compiler refuses it in every case with n >= 1; the interpreter alone, which does not compile, runs it with right values.
"""Add two vectors: as many programs as run at the same time, in steps over the whole length."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
PROGRAMS = 1056


@triton.jit
def add_block(x_ptr, y_ptr, out_ptr, offs, n):
    """Add the elements at `offs`, as far as they exist."""
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists, eviction_policy="evict_first")
    y = tl.load(y_ptr + offs, mask=exists, eviction_policy="evict_first")
    tl.store(out_ptr + offs, x + y, mask=exists)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns the blocks pid, pid + programs, pid + 2 * programs, ..."""
    lanes = tl.arange(0, BLOCK)
    # all programs together move on by this many elements
    stride = tl.num_programs(axis=0).to(tl.int64) * BLOCK
    first = tl.program_id(axis=0) * BLOCK
    while first < n:
        add_block(x_ptr, y_ptr, out_ptr, first.to(tl.int64) + lanes, n)
        first += stride


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    out = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n != 0:
        grid = (min(PROGRAMS, triton.cdiv(n, BLOCK)),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
