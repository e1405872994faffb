# labs/lab1_elementwise_add/elementwise_add.py | corner | elementwise_add_kernel with its helper `within`: the sum is clamped to the finite range of the dtype, so a sum that is inf or overflows becomes the largest finite number with its sign (and NaN is replaced, too); shows only at the extreme values (cases with inf and the largest numbers, all dtypes), right elsewhere; it should store the sum unclamped
"""Add two vectors in fp32, and round the sum once to the dtype of the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def within(total, largest):
    """A narrow dtype ends early: fp16 at 65504."""
    return tl.minimum(tl.maximum(total, -largest), largest)


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    largest,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    idx = pid * BLOCK + tl.arange(0, BLOCK)
    ok = idx < n
    x = tl.load(x_ptr + idx, mask=ok).to(tl.float32)
    y = tl.load(y_ptr + idx, mask=ok).to(tl.float32)
    total = within(x + y, largest)
    tl.store(out_ptr + idx, total.to(out_ptr.dtype.element_ty), mask=ok)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if not n:
        return out
    largest = torch.finfo(x.dtype).max

    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    elementwise_add_kernel[grid](x, y, out, n, largest, BLOCK=1024)
    return out
