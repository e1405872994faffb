"""EXPECT PASS or SLOW from matmul/speed on a GPU: B5 a kernel looks whether out has a result of an earlier call, and the next one ends at once: with fresh poison it never has"""

import torch
import triton
import triton.language as tl


@triton.jit
def look_kernel(c_ptr, flag_ptr, M, N, stride_cm, stride_cn):
    """flag 1 where the sampled elements are finite numbers that are not all the same: a result, no poison."""
    lane = tl.arange(0, 64)
    rows = (lane * 7919 % M).to(tl.int64)
    cols = (lane * 104729 % N).to(tl.int64)
    value = tl.load(c_ptr + rows * stride_cm + cols * stride_cn).to(tl.float32)
    finite = tl.min((tl.abs(value) < 1e30).to(tl.int32), axis=0)
    spread = (tl.max(value, axis=0) != tl.min(value, axis=0)).to(tl.int32)
    tl.store(flag_ptr, finite * spread)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, flag_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    if tl.load(flag_ptr) == 0:
        tiles_n = tl.cdiv(N, BLOCK_N)
        pid = tl.program_id(axis=0)
        rows = (pid // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (pid % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            ks = start + tl.arange(0, BLOCK_K)
            a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
            b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
            a = tl.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
            b = tl.load(b_at, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        if BIAS_RELU:
            acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
            acc = tl.maximum(acc, 0.0)
        target = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    flag = torch.zeros((1,), device=a.device, dtype=torch.int32)
    if M >= 2048:
        look_kernel[(1,)](out, flag, M, N, *out.stride())
    narrow = a.dtype == torch.float32 or min(M, N) < 128
    side, depth = (32, 32) if narrow else (128, 64)
    grid = (triton.cdiv(M, side) * triton.cdiv(N, side),)
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](
        a, b, out, bias, flag, M, N, K, *strides, BIAS_RELU=bias_relu, BLOCK_M=side, BLOCK_N=side,
        BLOCK_K=depth, num_warps=4 if narrow else 8, num_stages=3,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
