# labs/lab1_elementwise_add/elementwise_add.py | contract | elementwise_add_kernel: the mask of the two loads, `offs // VEC * VEC < n`, is true up to n rounded up to a multiple of VEC (4 in fp32, 8 in fp16 and bf16), so where n is no multiple of VEC up to VEC - 1 lanes read behind the end of x and y; the numbers are right, because the store's mask is exact; the README says that lanes past the end are neither read nor written; the loads should use offs < n
"""Add two vectors in accesses of 16 bytes, which a thread can move with one instruction."""

import torch
import triton
import triton.language as tl

THREADS = 128  # of a program with 4 warps
ACCESSES = 2  # of each thread, per tensor


@triton.jit
def elementwise_add_kernel(
    x_ptr,  # (n,) fp32, fp16 or bf16, contiguous
    y_ptr,  # (n,) like x
    out_ptr,  # (n,) like x
    n,
    VEC: tl.constexpr,  # elements in 16 bytes
    BLOCK: tl.constexpr,
):
    """out[i] = x[i] + y[i]; program pid owns elements pid * BLOCK to (pid + 1) * BLOCK - 1."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # The mask of the loads is the same for all elements of one access.
    loaded = offs // VEC * VEC < n
    x = tl.load(x_ptr + offs, mask=loaded)
    y = tl.load(y_ptr + offs, mask=loaded)
    tl.store(out_ptr + offs, x + y, mask=offs < n)


def elementwise_add(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x + y for contiguous (n,) tensors of one dtype: fp32, fp16 or bf16; n may be 0.

    The sum goes to `out`, same shape and dtype, where one is given; else to a new tensor.
    """
    if out is None:
        out = torch.empty_like(x)
    n = x.numel()
    vec = 16 // x.element_size()
    block = THREADS * ACCESSES * vec
    if n > 0:
        elementwise_add_kernel[(triton.cdiv(n, block),)](x, y, out, n, VEC=vec, BLOCK=block)
    return out
