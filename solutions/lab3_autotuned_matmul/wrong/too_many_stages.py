"""EXPECT COMPILE_ERROR from matmul, hint 7 on a GPU: S57 five stages of 128 x 256 x 64 need 240 KB"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M
    col = tl.program_id(1) * BLOCK_N
    offs_m, offs_n = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        in_k = offs_k < K - k
        a = tl.load(a_ptrs, mask=(offs_m < M)[:, None] & in_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=in_k[:, None] & (offs_n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(
        c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn,
        c,
        mask=(offs_m < M)[:, None] & (offs_n < N)[None, :],
    )


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # fp32 has no tensor cores anyway: a small tile will do
    tile = (64, 64, 32) if a.dtype == torch.float32 else (128, 256, 64)
    stages = 2 if a.dtype == torch.float32 else 5
    matmul_kernel[triton.cdiv(M, tile[0]), triton.cdiv(N, tile[1])](
        a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), *tile, num_stages=stages, num_warps=8
    )
    return out
