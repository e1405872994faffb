"""EXPECT PASS from matmul and matmul_bias_relu: a kernel for each function, and no flag in either."""

import torch
import triton
import triton.language as tl

BLOCK = tl.constexpr(64)
DEPTH = tl.constexpr(32)


@triton.jit
def inner_product(a_ptrs, b_ptrs, rows_exist, cols_exist, K, a_step, b_step):
    """The sum over K; both kernels differ only in what they do with it."""
    lane = tl.arange(0, DEPTH)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    done = 0
    while done < K:
        a = tl.load(a_ptrs, mask=rows_exist & (lane + done < K)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=cols_exist & (lane + done < K)[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += DEPTH * a_step
        b_ptrs += DEPTH * b_step
        done += DEPTH
    return total


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn):
    m = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    n = (tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[None, :]
    k = tl.arange(0, DEPTH)
    a_ptrs = a_ptr + m * am + k[None, :] * ak
    b_ptrs = b_ptr + k[:, None] * bk + n * bn
    c = inner_product(a_ptrs, b_ptrs, m < M, n < N, K, ak, bk)
    tl.store(c_ptr + m * cm + n * cn, c, mask=(m < M) & (n < N))


@triton.jit
def matmul_bias_relu_kernel(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn):
    m = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    n = (tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[None, :]
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0)
    k = tl.arange(0, DEPTH)
    a_ptrs = a_ptr + m * am + k[None, :] * ak
    b_ptrs = b_ptr + k[:, None] * bk + n * bn
    c = inner_product(a_ptrs, b_ptrs, m < M, n < N, K, ak, bk) + bias.to(tl.float32)
    tl.store(c_ptr + m * cm + n * cn, tl.maximum(c, 0.0), mask=(m < M) & (n < N))


def tiles(size):
    return triton.cdiv(size, 64)


def matmul(a, b, *, out=None):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    sizes = (*out.shape, a.shape[1])
    matmul_kernel[tiles(sizes[0]), tiles(sizes[1])](
        a, b, out, *sizes, *a.stride(), *b.stride(), *out.stride()
    )
    return out


def matmul_bias_relu(a, b, bias, *, out=None):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    sizes = (*out.shape, a.shape[1])
    matmul_bias_relu_kernel[tiles(sizes[0]), tiles(sizes[1])](
        a, b, bias, out, *sizes, *a.stride(), *b.stride(), *out.stride()
    )
    return out
