"""EXPECT WRONG/MISMATCH from matmul, hint 6: the clamp stands outside `if BIAS_RELU`"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = tl.swizzle2d(
        tl.program_id(0), tl.program_id(1), tl.num_programs(0), tl.num_programs(1), GROUP_M
    )
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rows, cols = offs_m[:, None], offs_n[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        down, across = offs_k[:, None], offs_k[None, :]
        a = tl.load(a_ptr + rows * stride_am + across * stride_ak, mask=(rows < M) & (across < K), other=0.0)
        b = tl.load(b_ptr + down * stride_bk + cols * stride_bn, mask=(down < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    acc = tl.where(acc < 0, 0.0, acc)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, acc, mask=(rows < M) & (cols < N))


def _call(a, b, bias, out, bias_relu):
    M, N = a.shape[0], b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[triton.cdiv(M, 64), triton.cdiv(N, 64)](
        a, b, out, bias, M, N, a.shape[1], *a.stride(), *b.stride(), *out.stride(), bias_relu, 64, 64, 32, 4
    )
    return out


def matmul(a, b, *, out=None):
    return _call(a, b, None, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _call(a, b, bias, out, True)
