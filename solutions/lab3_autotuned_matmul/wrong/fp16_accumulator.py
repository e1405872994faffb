"""EXPECT WRONG/PRECISION from matmul, hint 4: S16 the accumulator has the dtype of the result"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(0)
    offs_m = pid // num_pid_n * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % num_pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    dtype = c_ptr.dtype.element_ty
    c = tl.zeros((BLOCK_M, BLOCK_N), dtype=dtype)
    for k in tl.range(0, tl.cdiv(K, BLOCK_K)):
        offs_k = k * BLOCK_K + tl.arange(0, BLOCK_K)
        a_mask = (offs_m < M)[:, None] & (offs_k < K)[None, :]
        b_mask = (offs_k < K)[:, None] & (offs_n < N)[None, :]
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn, mask=b_mask, other=0.0)
        # the loop variable must keep its type
        c += tl.dot(a, b, input_precision="ieee").to(dtype)
    c_mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    tl.store(c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn, c, mask=c_mask)


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    n_tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    matmul_kernel[(n_tiles,)](
        a, b, out, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), *out.stride(), 64, 64, 32
    )
    return out
