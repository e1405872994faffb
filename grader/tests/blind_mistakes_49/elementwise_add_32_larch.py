# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In `elementwise_add_kernel`, `total` already starts with `fetch(x_ptr, offs, exists)`, and the loop `for k in tl.static_range(OPERANDS)` begins with operand 0 again, so the result is 2x + y. It should be `tl.static_range(1, OPERANDS)`; it shows in every case with elements.
"""Add vectors: a kernel that folds any number of operands into one block, used here with two."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def fetch(ptr, offs, exists):
    """The block of one operand; every element is read once, so it need not stay in the cache."""
    return tl.load(ptr + offs, mask=exists, eviction_policy="evict_first")


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    OPERANDS: tl.constexpr = 2
    operands = (x_ptr, y_ptr)

    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n

    # Begin with the first operand and not with zeros: 0.0 + -0.0 would lose the sign.
    total = fetch(x_ptr, offs, exists)
    for k in tl.static_range(OPERANDS):
        total = total + fetch(operands[k], offs, exists)
    tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
