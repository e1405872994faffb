"""EXPECT PASS from matmul and matmul_bias_relu: K is split, and a second kernel adds fp32 parts."""

import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, k_per_part,
    stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """part[s] = a[:, own share of K] @ b[own share of K, :]; axis 1 of the grid counts the shares."""
    pid, share = tl.program_id(0), tl.program_id(1)
    pid_m, pid_n = pid // tl.cdiv(N, BLOCK), pid % tl.cdiv(N, BLOCK)
    offs_m = pid_m.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = pid_n.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    begin = share * k_per_part
    end = tl.minimum(begin + k_per_part, K)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < end),
            other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < end) & (offs_n[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    offs = share.to(tl.int64) * M * N + offs_m[:, None] * N + offs_n[None, :]
    tl.store(part_ptr + offs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@triton.jit
def add_parts_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The parts are added in a fixed order, so that two runs agree in every bit."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    size = tl.cast(M, tl.int64) * N
    row, col = offs // N, offs % N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for share in tl.static_range(PARTS):
        total += tl.load(part_ptr + share * size + offs, mask=offs < size, other=0.0)
    if BIAS_RELU:
        total += tl.load(bias_ptr + col, mask=offs < size, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    c = total.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, c, mask=offs < size)


def split(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = 4 if K >= 128 else 1
    share = triton.cdiv(triton.cdiv(K, parts), 32) * 32
    scratch = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    part_kernel[(tiles, parts)](a, b, scratch, M, N, K, share, *a.stride(), *b.stride(), BLOCK=64, BLOCK_K=32)
    add_parts_kernel[(triton.cdiv(M * N, 1024),)](
        scratch, out, bias, M, N, *out.stride(), PARTS=parts, BIAS_RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a, b, *, out=None):
    return split(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out=None):
    return split(a, b, bias, out, True)
