"""EXPECT WRONG/UNWRITTEN from matmul_bias_relu, hint 1: S23 the grid has N // BLOCK columns of tiles"""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K = 32, 64, 32


@triton.jit
def bias_relu(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    acc += bias.to(tl.float32)[None, :]
    return tl.maximum(acc, 0.0)


@triton.jit
def matmul_bias_relu_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rest = K - k
        a = tl.load(
            a_ptr + rows[:, None] * am + (k + ks)[None, :] * ak,
            mask=(rows < M)[:, None] & (ks < rest)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + (k + ks)[:, None] * bk + cols[None, :] * bn,
            mask=(ks < rest)[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    acc = bias_relu(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * cm + cols[None, :] * cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def matmul_bias_relu(a, b, bias, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = ((M + BLOCK_M - 1) // BLOCK_M, max(1, N // BLOCK_N))
    matmul_bias_relu_kernel[grid](
        a, b, bias, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BM=BLOCK_M, BN=BLOCK_N, BK=BLOCK_K
    )
    return out
