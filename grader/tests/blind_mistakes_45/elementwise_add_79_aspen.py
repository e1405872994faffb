# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `total = pair[:, 0] + pair[:, 1]` indexes a block with numbers, which Triton does not support (only `:` and `None`). It should be `x, y = tl.split(pair)` and `x + y`. Does not compile for any n > 0.
"""Add two vectors: both operands of a block lie side by side in one tile of two columns."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def load_pair(x_ptr, y_ptr, offs, exists):
    """A tile of shape (BLOCK, 2): column 0 is x, column 1 is y."""
    x = tl.load(x_ptr + offs, mask=exists, other=0.0)
    y = tl.load(y_ptr + offs, mask=exists, other=0.0)
    return tl.join(x, y)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    exists = offs < n
    pair = load_pair(x_ptr, y_ptr, offs, exists)
    total = pair[:, 0] + pair[:, 1]
    tl.store(out_ptr + offs, total, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        grid = (triton.cdiv(n, BLOCK),)
        elementwise_add_kernel[grid](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
