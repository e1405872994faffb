"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 6: tl.minimum for tl.maximum"""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr,
    M, N, K,
    stride_am, stride_ak,
    stride_bk, stride_bn,
    stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    c = tl.zeros((BM, BN), tl.float32)
    for k0 in range(tl.cdiv(K, BK)):
        k = k0 * BK + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak,
                    mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)  # fmt: skip
        b = tl.load(b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn,
                    mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)  # fmt: skip
        c = tl.dot(a, b, c, input_precision="ieee")
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    c = tl.minimum(c + bias[None, :], 0.0)
    tl.store(c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn,
             c.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))  # fmt: skip


def matmul_bias_relu(a, b, bias, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty(M, N, device=a.device, dtype=a.dtype)
    kernel[triton.cdiv(M, 128), triton.cdiv(N, 32)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BM=128, BN=32, BK=32
    )
    return out
