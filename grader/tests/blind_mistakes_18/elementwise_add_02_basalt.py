# labs/lab1_elementwise_add/elementwise_add.py | error | In elementwise_add_kernel, `if i < n:` takes a whole block of booleans as the condition of an if, which does not compile (ambiguous truth value in the interpreter). The comparison should be the mask= of the loads and of the store.
"""Add two vectors: one program, one block of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def elementwise_add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    block_start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    i = block_start + tl.arange(0, BLOCK)
    # Lanes past the end belong to somebody else: neither read nor written.
    if i < n:
        a = tl.load(x_ptr + i)
        b = tl.load(y_ptr + i)
        tl.store(out_ptr + i, a + b)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.shape[0]
    if n == 0:
        return out
    blocks = triton.cdiv(n, BLOCK)
    elementwise_add_kernel[(blocks,)](x, y, out, n, BLOCK=BLOCK)
    return out
