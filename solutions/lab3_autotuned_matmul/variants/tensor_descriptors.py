"""EXPECT PASS from matmul: tensor descriptors where the strides allow them, plain pointers elsewhere."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BM, BN, BK = 64, 64, 64


@triton.jit
def described_kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc, input_precision="ieee")
    c_desc.store([m, n], acc.to(c_desc.dtype))


@triton.jit
def plain_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a0, a1, b0, b1, c0, c1,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + m[:, None] * a0 + k * a1, mask=(m[:, None] < M) & (k < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * b0 + n * b1, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * c0 + n * c1, c, mask=(m[:, None] < M) & (n < N))


def describable(matrix):
    """A descriptor wants contiguous rows that all start at a multiple of 16 bytes."""
    bytes_apart = matrix.stride(0) * matrix.element_size()
    return matrix.stride(1) == 1 and bytes_apart % 16 == 0 and matrix.data_ptr() % 16 == 0


def describe(matrix, height, width):
    return TensorDescriptor(matrix, matrix.shape, matrix.stride(), [height, width])


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
    if describable(a) and describable(b) and describable(out):
        described_kernel[grid](
            describe(a, BM, BK), describe(b, BK, BN), describe(out, BM, BN), K, BM=BM, BN=BN, BK=BK
        )
    else:
        plain_kernel[grid](
            a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride(), BM=BM, BN=BN, BK=BK // 2
        )
    return out
