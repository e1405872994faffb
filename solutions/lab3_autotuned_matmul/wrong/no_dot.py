"""EXPECT WRONG from matmul/code, hint 9: S57 the product of two tiles is a sum of outer products"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(K):
        column = tl.load(a_ptr + i * stride_am + k * stride_ak, mask=i < M, other=0.0).to(tl.float32)
        row = tl.load(b_ptr + k * stride_bk + j * stride_bn, mask=j < N, other=0.0).to(tl.float32)
        acc += column[:, None] * row[None, :]
    c_ptrs = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    matmul_kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BLOCK=64)
    return out
