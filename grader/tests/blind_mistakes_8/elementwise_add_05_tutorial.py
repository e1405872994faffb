# labs/lab1_elementwise_add/elementwise_add.py | contract | `torch.empty(x.shape, device=x.device)` allocates the new result as fp32 whatever the dtype of x; must have dtype=x.dtype (or empty_like). Shows for fp16/bf16 without `out`: the result has the wrong dtype.
"""Vector addition in the manner of the first Triton tutorial."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    # There are multiple programs processing different data. We identify which one we are here.
    pid = tl.program_id(axis=0).to(tl.int64)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    # Create a mask to guard memory operations against out-of-bounds accesses.
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Add x and y and return the sum."""
    output = torch.empty(x.shape, device=x.device) if out is None else out
    n_elements = output.numel()
    if n_elements == 0:
        return output
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output
