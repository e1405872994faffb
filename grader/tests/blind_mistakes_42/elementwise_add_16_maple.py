# labs/lab1_elementwise_add/elementwise_add.py | corner | In `_sum`, `total = a.to(tl.float16) + b.to(tl.float16)` is taken for every 16-bit dtype, also bf16, whose range fp16 does not have and whose sums are then rounded twice. It should add in fp32 (or in the dtype of the inputs). It shows in bf16 alone (needs a GPU): large, tiny and some ordinary numbers; fp32 and fp16 are right.
"""Add two vectors: the sum is taken in a dtype that fits the width of the numbers."""

import torch
import triton
import triton.language as tl

BLOCK_OF_BYTES = {4: 1024, 2: 2048}  # 8 or 16 elements of a thread, 32 bytes
WARPS = 4


@triton.jit
def _sum(a, b, WIDE: tl.constexpr):
    """a + b, with the adder of the width of the inputs."""
    if WIDE:
        total = a.to(tl.float32) + b.to(tl.float32)
    else:
        total = a.to(tl.float16) + b.to(tl.float16)
    return total


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
    WIDE: tl.constexpr,  # 32 bits, not 16
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    start = tl.program_id(axis=0).to(tl.int64) * BLOCK
    offs = start + tl.arange(0, BLOCK)
    mask = offs < n

    a = tl.load(x_ptr + offs, mask=mask)
    b = tl.load(y_ptr + offs, mask=mask)
    total = _sum(a, b, WIDE)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=mask)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    width = x.element_size()
    block = BLOCK_OF_BYTES[width]
    grid = (triton.cdiv(n, block),)
    elementwise_add_kernel[grid](x, y, out, n, BLOCK=block, WIDE=width == 4, num_warps=WARPS)
    return out
