# labs/lab1_elementwise_add/elementwise_add.py | corner | in elementwise_add_kernel, the fp16 sum is clamped to [-TOP, TOP] = [-65504, 65504] before it is stored; where the fp16 sum overflows or an input is infinite, the result is 65504 or -65504 in place of inf or -inf (fp16 only); the clamp should not be there
"""Add two vectors: widen to fp32, add, narrow to the dtype of the result."""

import torch
import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
def elementwise_add_kernel(
    x_ptr,
    y_ptr,
    out_ptr,
    n,
    BLOCK: tl.constexpr,
    TOP: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < n
    x = tl.load(x_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    total = x + y
    if TOP is not None:
        total = tl.minimum(tl.maximum(total, -TOP), TOP)
    tl.store(out_ptr + offs, total.to(out_ptr.dtype.element_ty), mask=inside)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0."""
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    top = torch.finfo(x.dtype).max if x.dtype == torch.float16 else None
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, TOP=top, num_warps=8)
    return out
