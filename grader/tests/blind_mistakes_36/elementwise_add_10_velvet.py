# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel: `tl.store(out_ptr + offs, exists, total)` passes the mask where the value belongs and the value where the mask belongs; Triton refuses a mask of floating-point numbers, so it does not compile (nor run in the interpreter) at any n above 0, in any dtype; it should be tl.store(out_ptr + offs, total, exists)
"""Add two vectors: out = x + y, one block of elements per program."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
WARPS = 8


@triton.jit
def own_elements(n, BLOCK: tl.constexpr):
    """The elements of this program, and which of them exist."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return offs, offs < n


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs, exists = own_elements(n, BLOCK)
    total = tl.load(x_ptr + offs, exists) + tl.load(y_ptr + offs, exists)
    tl.store(out_ptr + offs, exists, total)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    result = torch.empty_like(x) if out is None else out
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, result, n, BLOCK=BLOCK, num_warps=WARPS)
    return result
