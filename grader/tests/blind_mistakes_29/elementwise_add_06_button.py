# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add, `work = tl.float32 if x.dtype == torch.float32 else tl.float16` takes fp16 for bf16, too, so bf16 inputs are converted to fp16 before they are added: sums are rounded twice (wrong last digit in about one per cent of normal values), numbers beyond 65504 become inf and tiny ones lose digits or become 0; shows in bf16 only (so only on a GPU), hardly for very small n; should add in the dtype of the inputs, or in fp32
"""out = x + y, with the dtype of the addition chosen by the host."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    WORK: tl.constexpr,  # dtype of the addition
    BLOCK: tl.constexpr,
):
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = i < n
    x = tl.load(x_ptr + i, mask=keep).to(WORK)
    y = tl.load(y_ptr + i, mask=keep).to(WORK)
    z = x + y
    tl.store(out_ptr + i, z.to(out_ptr.dtype.element_ty), mask=keep)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Sum of two vectors."""
    assert x.numel() == y.numel(), "x and y differ in length"
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    work = tl.float32 if x.dtype == torch.float32 else tl.float16
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        elementwise_add_kernel[grid](x, y, out, n, WORK=work, BLOCK=BLOCK)
    return out
