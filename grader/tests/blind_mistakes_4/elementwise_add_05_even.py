# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel, heuristic EVEN: it tests whether n is a multiple of 16, not of BLOCK_SIZE, so for n = 16, 48 or 5008 the last program reads and writes past the end; it must be n % BLOCK_SIZE == 0
"""Vector add. The mask costs wide loads, so it is left out for aligned sizes."""

import torch
import triton
import triton.language as tl

BLOCK_SIZE = 1024


@triton.heuristics({"EVEN": lambda args: args["n_elements"] % 16 == 0})
@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr, EVEN: tl.constexpr):
    pid = tl.program_id(axis=0).to(tl.int64)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        y = tl.load(y_ptr + offsets)
        tl.store(output_ptr + offsets, x + y)
    else:
        mask = offsets < n_elements
        x = tl.load(x_ptr + offsets, mask=mask)
        y = tl.load(y_ptr + offsets, mask=mask)
        tl.store(output_ptr + offsets, x + y, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None):
    output = torch.empty_like(x) if out is None else out
    n_elements = output.numel()
    if n_elements == 0:
        return output
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    elementwise_add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=BLOCK_SIZE)
    return output
