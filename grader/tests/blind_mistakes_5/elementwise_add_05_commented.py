# labs/lab1_elementwise_add/elementwise_add.py | corner | The sum starts from `tl.zeros` and adds both operands: 0.0 + -0.0 + -0.0 is 0.0, so the sign of -0.0 + -0.0 is lost. It must start from the loaded x.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

# I tried 256, 512, 1024. On my laptop it makes no difference of course.
BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # the number of my program ...
    pid = tl.program_id(axis=0).to(tl.int64)
    # ... gives the elements that are mine
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    # the last program has lanes past the end, they must not touch memory
    mask = offsets < n
    # start from zero, add the first operand, then the second one
    total = tl.zeros((BLOCK,), dtype=x_ptr.dtype.element_ty)
    total += tl.load(x_ptr + offsets, mask=mask, other=0.0)
    total += tl.load(y_ptr + offsets, mask=mask, other=0.0)
    # and write the total back
    tl.store(out_ptr + offsets, total, mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    # cdiv rounds up, so the last partial block gets a program, too
    number_of_programs = triton.cdiv(n, BLOCK)
    # CUDA does not like empty grids
    if number_of_programs > 0:
        elementwise_add_kernel[(number_of_programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
