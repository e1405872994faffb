"""EXPECT WRONG/UNWRITTEN from matmul, hint 5: S39 out.contiguous() is a copy where out has padded rows"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, BLOCK_M: tl.constexpr,
                  BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    width = tl.cdiv(N, BLOCK_N)
    y = pid // width * BLOCK_M + tl.arange(0, BLOCK_M)
    x = pid % width * BLOCK_N + tl.arange(0, BLOCK_N)
    z = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for z0 in range(0, K, BLOCK_K):
        zz = z0 + z
        a = tl.load(
            a_ptr + y[:, None] * sa0 + zz[None, :] * sa1, mask=(y[:, None] < M) & (zz[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + zz[:, None] * sb0 + x[None, :] * sb1, mask=(zz[:, None] < K) & (x[None, :] < N), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    # c is contiguous: its rows have N elements
    tl.store(c_ptr + y[:, None] * N + x[None, :], acc, mask=(y[:, None] < M) & (x[None, :] < N))


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    c = out.contiguous()
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 128),)
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), BLOCK_M=64, BLOCK_N=128, BLOCK_K=64)
    return out
