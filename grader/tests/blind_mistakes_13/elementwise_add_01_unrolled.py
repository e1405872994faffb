# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In the unrolled loop `offs = (pid + step) * BLOCK + lanes` should be `(pid * STEPS + step) * BLOCK + lanes`: the programs (cdiv(n, BLOCK * STEPS) of them, which is meant) overlap, and most of a longer vector is never written.
"""Add two vectors: each program walks over a few neighbouring blocks."""

import torch
import triton
import triton.language as tl

BLOCK = 128
STEPS = 8


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
):
    """out[i] = x[i] + y[i]; one program is one warp and adds STEPS blocks of BLOCK elements."""
    pid = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    # unrolled, so that the loads of the next block are already on their way
    for step in tl.static_range(STEPS):
        offs = (pid + step) * BLOCK + lanes
        mask = offs < n
        a = tl.load(x_ptr + offs, mask=mask)
        b = tl.load(y_ptr + offs, mask=mask)
        tl.store(out_ptr + offs, a + b, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK * STEPS),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, STEPS=STEPS, num_warps=1)
    return out
