"""EXPECT OUT_OF_BOUNDS/READ from matmul_bias_relu, hint 3 on a CPU: S18 the mask of K stays as it began"""

import torch
import triton
import triton.language as tl


@triton.jit
def fused_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_k = tl.arange(0, BLOCK_K)
    mask_m, mask_n, mask_k = offs_m < M, offs_n < N, offs_k < K
    mask_a = mask_m[:, None] & mask_k[None, :]
    mask_b = mask_k[:, None] & mask_n[None, :]
    a_tile = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_tile = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_tile, mask=mask_a, other=0)
        b = tl.load(b_tile, mask=mask_b, other=0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    bias = tl.load(bias_ptr + offs_n, mask=mask_n, other=0).to(tl.float32)
    acc = tl.maximum(acc + bias[None, :], 0)
    where = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(where, acc, mask=mask_m[:, None] & mask_n[None, :])


def matmul_bias_relu(a, b, bias, *, out=None):
    M, N, K = a.size(0), b.size(1), a.size(1)
    if out is None:
        out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    tiles = lambda n: triton.cdiv(n, 64)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    fused_kernel[tiles(N), tiles(M)](a, b, bias, out, M, N, K, *strides, BLOCK=64, BLOCK_K=64)
    return out
