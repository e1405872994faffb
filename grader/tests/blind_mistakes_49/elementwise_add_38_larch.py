# labs/lab1_elementwise_add/elementwise_add.py | error | In `elementwise_add_kernel`, `n.to(tl.int64)` raises for n = 1, because an integer argument that is 1 is specialised to a constant without `.to`. It should be `left = n - start`, as `start` is int64 already; all other sizes are right.
"""Add two vectors: pointers are moved to the block first, and count what is left from there."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    # All that is counted in elements of the vector is int64: 2^31 elements do not fit into int32.
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    left = n.to(tl.int64) - start  # elements from the start of this block to the end

    x_ptr += start
    y_ptr += start
    out_ptr += start

    # Within a block int32 is enough.
    lanes = tl.arange(0, BLOCK)
    exists = lanes < left
    x = tl.load(x_ptr + lanes, mask=exists)
    y = tl.load(y_ptr + lanes, mask=exists)
    tl.store(out_ptr + lanes, x + y, mask=exists)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=8)
    return out
