# labs/lab1_elementwise_add/elementwise_add.py | wrong everywhere | In fused_add_kernel `total = tl.fma(x, y, one)` is x * y + 1, because tl.fma(a, b, c) is a * b + c. It should be `tl.fma(one, y, x)`. Shows for all sizes and dtypes.
"""Add two vectors in fp32 registers, with one fused instruction for each element."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def load_wide(ptr, offs, exists):
    """A block of numbers in fp32, which holds every fp16 and bf16 number exactly."""
    return tl.load(ptr + offs, mask=exists).to(tl.float32)


@triton.jit
def store_narrow(ptr, offs, exists, values):
    """Round once to the dtype of the destination, and store."""
    tl.store(ptr + offs, values.to(ptr.dtype.element_ty), mask=exists)


@triton.jit
def fused_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    pid = tl.program_id(axis=0).to(tl.int64)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    exists = offs < n

    x = load_wide(x_ptr, offs, exists)
    y = load_wide(y_ptr, offs, exists)
    # One FMA with a factor of 1: it has a single rounding, and keeps the sign of a zero.
    one = tl.full((BLOCK,), 1.0, tl.float32)
    total = tl.fma(x, y, one)

    store_narrow(out_ptr, offs, exists, total)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return out
    fused_add_kernel[(triton.cdiv(n, BLOCK),)](x, y, out, n, BLOCK=BLOCK, num_warps=4)
    return out
