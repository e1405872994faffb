# labs/lab1_elementwise_add/elementwise_add.py | error | elementwise_add_kernel: `inside` is None in one branch of the `if` and a block of booleans in the other; the condition depends on pid and n at run time, so the compiler needs one type for `inside` after the two branches and refuses; it does not compile for a GPU at any size (the interpreter runs it, with right sums); it should be inside = offs < n without the branch, or a branch on a tl.constexpr
"""Add two vectors: full blocks need no mask, only the last one does."""

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
    pid = tl.program_id(axis=0).to(tl.int64)
    begin = pid * BLOCK
    end = begin + BLOCK
    offs = begin + tl.arange(0, BLOCK)
    if end <= n:
        inside = None
    else:
        inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside)
    y = tl.load(y_ptr + offs, mask=inside)
    tl.store(out_ptr + offs, x + y, mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    programs = triton.cdiv(n, BLOCK)
    if programs:
        elementwise_add_kernel[(programs,)](x, y, out, n, BLOCK=BLOCK)
    return out
