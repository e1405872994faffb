"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 6: S48 the bias follows the rows"""

import torch
import triton
import triton.language as tl


@triton.jit
def linear_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    bias = tl.load(bias_ptr + offs_m, mask=offs_m < N, other=0.0).to(tl.float32)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    # start from the bias instead of adding it at the end
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32) + bias[:, None]
    for k in range(tl.cdiv(K, BLOCK_K)):
        mask_k = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(offs_m < M)[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=mask_k[:, None] & (offs_n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = tl.maximum(acc, 0.0).to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


def matmul_bias_relu(a, b, bias, *, out=None):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    M, N = out.shape
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 32))
    linear_kernel[grid](
        a, b, bias, out, M, N, a.shape[1], *a.stride(), *b.stride(), *out.stride(), 64, 32, 32
    )
    return out
