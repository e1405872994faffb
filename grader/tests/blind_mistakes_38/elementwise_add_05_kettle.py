# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel starts the sum from acc = tl.zeros(...), which is +0.0, and adds x and y to it: where both are -0.0 the result is 0.0 and should be -0.0 (only the sign of such zeros is wrong, in every dtype, everything else is right); should be the sum x + y of the two loads alone
"""out = x + y: the terms are collected one after another in an accumulator."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    block_id = tl.program_id(axis=0)
    start = block_id.to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    valid = offsets < n

    acc = tl.zeros((BLOCK,), dtype=out_ptr.dtype.element_ty)
    acc += tl.load(x_ptr + offsets, mask=valid)
    acc += tl.load(y_ptr + offsets, mask=valid)

    tl.store(out_ptr + offsets, acc, mask=valid)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    assert x.shape == y.shape, f"x has shape {x.shape}, y has {y.shape}"
    if out is None:
        out = torch.empty_like(x)

    n_elements = out.numel()
    if n_elements != 0:
        n_blocks = (n_elements + BLOCK - 1) // BLOCK
        elementwise_add_kernel[(n_blocks,)](x, y, out, n_elements, BLOCK=BLOCK, num_warps=4)

    return out
