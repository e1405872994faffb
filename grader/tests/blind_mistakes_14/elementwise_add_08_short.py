# labs/lab1_elementwise_add/elementwise_add.py | error | `tl.arange(pid * BLOCK, (pid + 1) * BLOCK)` has bounds that depend on the program, and tl.arange takes constants only, so the kernel does not compile; it should be `pid * BLOCK + tl.arange(0, BLOCK)`.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(0).to(tl.int64)
    i = tl.arange(pid * BLOCK, (pid + 1) * BLOCK)
    m = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=m) + tl.load(y_ptr + i, mask=m), mask=m)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK)
    return out
