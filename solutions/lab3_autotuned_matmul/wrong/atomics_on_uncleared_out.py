"""EXPECT WRONG/NONFINITE from matmul, hint 5: S26 each part of K is added to what out happens to hold"""

import torch
import triton
import triton.language as tl


@triton.jit
def splitk_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, K_PART, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    first = tl.program_id(2) * K_PART
    last = min(first + K_PART, K)
    in_m, in_n = rows[:, None] < M, cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(first, last, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=in_m & (ks[None, :] < last),
            other=0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=in_n & (ks[:, None] < last),
            other=0,
        )
        acc += tl.dot(a, b, input_precision="ieee")
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.atomic_add(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


SPLIT_K = 2


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.zeros((M, N), device=a.device, dtype=a.dtype)
    part = triton.cdiv(triton.cdiv(K, SPLIT_K), 32) * 32
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), SPLIT_K)
    splitk_kernel[grid](
        a, b, out, M, N, K, part, *a.stride(), *b.stride(), *out.stride(), BLOCK_M=64, BLOCK_N=64, BLOCK_K=32
    )
    return out
