"""EXPECT WRONG/NONFINITE from matmul, hint 4: S29 the tile is cast to fp16, also for fp32 matrices"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # one row of tiles per program: walk over the columns
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.arange(0, BLOCK_K)
    row_ok = offs_m[:, None] < M
    for first_n in range(0, N, BLOCK_N):
        offs_n = first_n + tl.arange(0, BLOCK_N)
        col_ok = offs_n[None, :] < N
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_ptrs, mask=row_ok & (k + offs_k[None, :] < K), other=0.0)
            b = tl.load(b_ptrs, mask=col_ok & (k + offs_k[:, None] < K), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk
        c = acc.to(tl.float16)
        tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, c, mask=row_ok & col_ok)


def matmul(a, b, *, out=None):
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[(triton.cdiv(M, 32),)](
        a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BLOCK_M=32, BLOCK_N=128, BLOCK_K=64
    )
    return out
