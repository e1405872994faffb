"""EXPECT OUT_OF_BOUNDS/WRITE from matmul, hint 5: S3 the mask of rows is <= M"""

import torch
import triton
import triton.language as tl


@triton.jit
def tile_product(a_ptr, b_ptr, m, n, K, stride_am, stride_ak, stride_bk, stride_bn, has_m, has_n,
                 BLOCK_K: tl.constexpr):  # fmt: skip
    k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((m.shape[0], n.shape[0]), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        has_k = k0 + k < K
        a = tl.load(
            a_ptr + m[:, None] * stride_am + (k0 + k)[None, :] * stride_ak,
            mask=has_m[:, None] & has_k[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + (k0 + k)[:, None] * stride_bk + n[None, :] * stride_bn,
            mask=has_k[:, None] & has_n[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                  stride_cm, stride_cn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    has_m = m < M
    has_n = n < N
    acc = tile_product(
        a_ptr, b_ptr, m, n, K, stride_am, stride_ak, stride_bk, stride_bn, has_m, has_n, BLOCK_K
    )
    inside = (m[:, None] <= M) & has_n[None, :]
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn, c, mask=inside)


def matmul(a, b, *, out=None):
    if out is None:
        out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    M, N = out.shape
    matmul_kernel[triton.cdiv(M, 32), triton.cdiv(N, 64)](
        a, b, out, M, N, a.shape[1], *a.stride(), *b.stride(), *out.stride(), 32, 64, 64
    )
    return out
