"""EXPECT PASS from matmul: tiles are walked down the columns of c, only warps and stages are tuned."""

import torch
import triton
import triton.language as tl

SIDE = 64

TRIALS = [triton.Config({}, num_warps=warps, num_stages=stages) for warps in (4, 8) for stages in (2, 3, 4)]


@triton.autotune(TRIALS, key=["M", "N", "K"])
@triton.jit
def column_major_matmul_kernel(
    a_ptr, b_ptr, c_ptr,
    M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    SIDE: tl.constexpr,
):  # fmt: skip
    """Programs that follow each other own tiles below each other, which share their part of b."""
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, SIDE)
    pid_n = pid // tiles_m
    pid_m = pid - pid_n * tiles_m

    step = tl.arange(0, SIDE)
    offs_m = (pid_m * SIDE + step).to(tl.int64)
    offs_n = (pid_n * SIDE + step).to(tl.int64)
    a_ptrs = a_ptr + (offs_m[:, None] * stride_am + step[None, :] * stride_ak)
    b_ptrs = b_ptr + (step[:, None] * stride_bk + offs_n[None, :] * stride_bn)

    acc = tl.zeros([SIDE, SIDE], dtype=tl.float32)
    remaining = K
    for _ in range(tl.cdiv(K, SIDE)):
        a = tl.load(a_ptrs, mask=(offs_m < M)[:, None] & (step < remaining)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(step < remaining)[:, None] & (offs_n < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
        a_ptrs += SIDE * stride_ak
        b_ptrs += SIDE * stride_bk
        remaining -= SIDE

    c = acc.to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :])


def matmul(a, b, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    c = out if out is not None else torch.empty((M, N), device=a.device, dtype=a.dtype)
    programs = triton.cdiv(M, SIDE) * triton.cdiv(N, SIDE)
    column_major_matmul_kernel[(programs,)](
        a, b, c, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1), SIDE=SIDE,
    )  # fmt: skip
    return c
