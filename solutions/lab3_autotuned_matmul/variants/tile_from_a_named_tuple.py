"""EXPECT PASS from matmul_bias_relu: no autotuner, tiles in a named tuple, and the bias starts the sums."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Tile(NamedTuple):
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_K: int
    WARPS: int
    STAGES: int = 3


SMALL = Tile(32, 32, 32, WARPS=2)
MIDDLE = Tile(64, 64, 32, WARPS=4)
LARGE = Tile(128, 128, 64, WARPS=8)


def choose(m: int, n: int, dtype: torch.dtype) -> Tile:
    """By the size of the result; exact fp32 stays with tiles whose code is short."""
    if min(m, n) < 64:
        return SMALL
    return LARGE if dtype != torch.float32 and min(m, n) >= 512 else MIDDLE


@triton.jit
def fused_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    across = tl.cdiv(N, BLOCK_N)
    offs_m = pid // across * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid % across * BLOCK_N + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)
    # The sum of every row starts at the bias of its column, so nothing is left to add at the end.
    acc = tl.broadcast_to(bias[None, :], (BLOCK_M, BLOCK_N))
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
        b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = tl.maximum(acc, 0.0).to(c_ptr.dtype.element_ty)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul_bias_relu(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    if out is None:
        out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    tile = choose(m, n, a.dtype)
    grid = (triton.cdiv(m, tile.BLOCK_M) * triton.cdiv(n, tile.BLOCK_N),)
    fused_kernel[grid](
        a, b, bias, out, m, n, k, *a.stride(), *b.stride(), *out.stride(),
        BLOCK_M=tile.BLOCK_M, BLOCK_N=tile.BLOCK_N, BLOCK_K=tile.BLOCK_K,
        num_warps=tile.WARPS, num_stages=tile.STAGES,
    )  # fmt: skip
    return out
