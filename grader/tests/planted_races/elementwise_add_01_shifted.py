# labs/lab1_elementwise_add/elementwise_add.py | race | store in line 27 to out: start is clamped to n - BLOCK (line 22), so for n > BLOCK and n % BLOCK != 0 the last program p = cdiv(n, BLOCK) - 1 and program p - 1 both store out[n - BLOCK : p * BLOCK]; same bits, values right
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
    """out[i] = x[i] + y[i]; the last program moves back so that its block ends where the vector ends."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    # Full blocks all the way; only a vector shorter than one block has lanes that do not exist.
    start = tl.maximum(tl.minimum(start, n - BLOCK), 0)
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n
    x = tl.load(x_ptr + offs, mask=exists)
    y = tl.load(y_ptr + offs, mask=exists)
    tl.store(out_ptr + offs, x + y, mask=exists)


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
