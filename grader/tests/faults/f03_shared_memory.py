"""EXPECT COMPILE_ERROR from matmul on a GPU: F3 three stages of 256 by 256 by 128 do not fit into shared memory."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, M, N, K, sam, sak, sbk, sbn, som, son, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + offs_m[:, None] * sam + (k + offs_k[None, :]) * sak, mask=(offs_m[:, None] < M) & (k + offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + (k + offs_k[:, None]) * sbk + offs_n[None, :] * sbn, mask=(k + offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    tl.store(out_ptr + offs_m[:, None] * som + offs_n[None, :] * son, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a, b, *, out=None):
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 256), triton.cdiv(n, 256))
    matmul_kernel[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), *out.stride(), BM=256, BN=256, BK=128, num_warps=8, num_stages=4)
    return out
