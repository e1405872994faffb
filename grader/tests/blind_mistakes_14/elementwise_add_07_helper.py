# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | The helper `element` returns `base + index * ITEM` with ITEM the bytes of an element, but Triton's pointer arithmetic already counts in elements, so every load and store hits element index * 4 (or * 2); it should be `base + index`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def element(base, index, ITEM: tl.constexpr):
    """Addresses of the elements `index` of the vector that begins at base."""
    return base + index * ITEM


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    ITEM: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    index = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = index < n
    left = tl.load(element(x_ptr, index, ITEM), mask=exists)
    right = tl.load(element(y_ptr, index, ITEM), mask=exists)
    tl.store(element(out_ptr, index, ITEM), left + right, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n > 0:
        blocks = triton.cdiv(n, BLOCK)
        elementwise_add_kernel[(blocks,)](x, y, out, n, BLOCK=BLOCK, ITEM=x.element_size())
    return out
