"""EXPECT WRONG/MISMATCH from matmul, hint 3: S35 tl.dot(a, b, acc) is called, and its result thrown away"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m0 = tl.program_id(0) * BLOCK_M
    n0 = tl.program_id(1) * BLOCK_N
    offs_m = m0 + tl.arange(0, BLOCK_M)
    offs_n = n0 + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_base = a_ptr + offs_m[:, None] * stride_am
    b_base = b_ptr + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        ks = step * BLOCK_K + offs_k
        a = tl.load(a_base + ks[None, :] * stride_ak, mask=(offs_m[:, None] < M) & (ks[None, :] < K), other=0)
        b = tl.load(b_base + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & (offs_n[None, :] < N), other=0)
        tl.dot(a, b, acc, input_precision="ieee")
    inside = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, acc, mask=inside)


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[-1]
    if out is None:
        out = torch.empty([M, N], dtype=a.dtype, device=a.device)
    blocks = 32, 32, 64
    matmul_kernel[triton.cdiv(M, 32), triton.cdiv(N, 32)](
        a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), *blocks
    )
    return out
