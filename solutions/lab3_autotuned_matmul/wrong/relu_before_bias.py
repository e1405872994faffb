"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 6: the clamp comes first, then the bias"""

import torch
import triton
import triton.language as tl


@triton.jit
def activation(x):
    return tl.maximum(x, 0.0)


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64}, num_warps=4),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64}, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_bias_relu_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr = 32,
):  # fmt: skip
    num_pid_m = tl.cdiv(M, BLOCK_M)
    # column by column
    offs_m = (tl.program_id(0) % num_pid_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (tl.program_id(0) // num_pid_m) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_ok, n_ok = offs_m[:, None] < M, offs_n[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            m_ok & (offs_k[None, :] < K),
            0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            n_ok & (offs_k[:, None] < K),
            0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    acc = activation(acc)
    acc += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0)[None, :]
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=m_ok & n_ok)


def matmul_bias_relu(a, b, bias, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_bias_relu_kernel[grid](a, b, bias, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out
