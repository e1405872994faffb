# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel `tl.arange(begin, begin + BLOCK)` has bounds that are known only at run time, so the kernel does not compile: tl.arange takes constants. It should be `begin + tl.arange(0, BLOCK)`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    begin = tl.program_id(axis=0).to(tl.int64) * BLOCK
    mine = tl.arange(begin, begin + BLOCK)
    exists = mine < n

    left = tl.load(x_ptr + mine, mask=exists)
    right = tl.load(y_ptr + mine, mask=exists)
    tl.store(out_ptr + mine, left + right, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.size(0)
    if n == 0:
        return out
    elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
