"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 6: ReLU, but no bias"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_relu_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.program_id(1), tl.program_id(0)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    in_m = offs_m[:, None] < M
    in_n = offs_n[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=in_m & (offs_k[None, :] + k < K), other=0.0)
        b = tl.load(b_ptrs, mask=in_n & (offs_k[:, None] + k < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if RELU:
        bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
        bias = tl.expand_dims(bias, 0)
        acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def _run(a, b, bias, out, relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    strides = [*a.stride(), *b.stride(), *out.stride()]
    grid = (triton.cdiv(N, 64), triton.cdiv(M, 64))
    matmul_relu_kernel[grid](a, b, out, bias, M, N, K, *strides, relu, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    return out


def matmul(a, b, *, out=None):
    return _run(a, b, a, out, relu=False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _run(a, b, bias, out, relu=True)
