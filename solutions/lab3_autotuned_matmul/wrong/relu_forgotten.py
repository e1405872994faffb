"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 6: bias, but no ReLU"""

import torch
import triton
import triton.language as tl


@triton.jit
def addmm_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BLOCK_M
    start_n = tl.program_id(1) * BLOCK_N
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    acc = tl.broadcast_to(bias[None, :], (BLOCK_M, BLOCK_N))
    for start_k in range(0, K, BLOCK_K):
        offs_k = start_k + tl.arange(0, BLOCK_K)
        a_mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
        b_mask = (offs_k < K)[:, None] & (offs_n < N)[None, :]
        a = tl.load(a_ptr + (offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak), a_mask, other=0.0)
        b = tl.load(b_ptr + (offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn), b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(c_ptr + (offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn), acc, mask=c_mask)


def matmul_bias_relu(a, b, bias, *, out=None):
    M, K, N = *a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    addmm_kernel[triton.cdiv(M, 16), triton.cdiv(N, 128)](
        a, b, bias, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BLOCK_M=16, BLOCK_N=128, BLOCK_K=64
    )
    return out
