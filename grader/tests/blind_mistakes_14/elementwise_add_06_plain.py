# labs/lab1_elementwise_add/elementwise_add.py | corner | The sum starts from `acc = tl.zeros((BLOCK,), dtype=tl.float32)` and adds x and y to it, so -0.0 + -0.0 gives 0.0 in place of -0.0; x + y should be stored without anything added to it.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

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
    pid = tl.program_id(axis=0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    in_range = offs < n

    # accumulate in fp32, whatever the inputs are
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    acc += tl.load(x_ptr + offs, mask=in_range, other=0.0).to(tl.float32)
    acc += tl.load(y_ptr + offs, mask=in_range, other=0.0).to(tl.float32)

    # and round once at the end
    tl.store(out_ptr + offs, acc.to(out_ptr.dtype.element_ty), mask=in_range)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n_elements = x.numel()
    if n_elements != 0:
        grid = (triton.cdiv(n_elements, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n_elements, BLOCK=BLOCK)
    return out
