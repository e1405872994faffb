"""EXPECT PASS from matmul and matmul_bias_relu: persistent programs, each works through a list of tiles."""

import torch
import triton
import triton.language as tl

MULTIPROCESSORS = 132


@triton.jit
def locate(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    per_group = GROUP * tiles_n
    first = (tile // per_group) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + (tile % per_group) % height, (tile % per_group) // height


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    a_row, a_col, b_row, b_col, c_row, c_col,
    HAS_BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    k_lanes = tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        tm, tn = locate(tile, tiles_m, tiles_n, 4)
        m = tl.cast(tm, tl.int64) * BM + tl.arange(0, BM)
        n = tl.cast(tn, tl.int64) * BN + tl.arange(0, BN)
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            kk = (k + k_lanes).to(tl.int64)
            a_mask = (m[:, None] < M) & (kk[None, :] < K)
            b_mask = (kk[:, None] < K) & (n[None, :] < N)
            a = tl.load(a_ptr + m[:, None] * a_row + kk[None, :] * a_col, mask=a_mask, other=0)
            b = tl.load(b_ptr + kk[:, None] * b_row + n[None, :] * b_col, mask=b_mask, other=0)
            sums = tl.dot(a, b, sums, input_precision="ieee")
        if HAS_BIAS:
            bias = tl.load(bias_ptr + n, mask=n < N, other=0)
            sums = tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)
        where = c_ptr + m[:, None] * c_row + n[None, :] * c_col
        tl.store(where, sums.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def _product(a, b, out, bias=None):
    (m, k), n = a.shape, b.shape[1]
    if out is None:
        out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    tiles = triton.cdiv(m, 64) * triton.cdiv(n, 64)
    persistent_kernel[(min(tiles, 2 * MULTIPROCESSORS),)](
        a, b, out, out if bias is None else bias, m, n, k, *a.stride(), *b.stride(), *out.stride(),
        HAS_BIAS=bias is not None, BM=64, BN=64, BK=32, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def matmul(a, b, *, out=None):
    return _product(a, b, out)


def matmul_bias_relu(a, b, bias, *, out=None):
    return _product(a, b, out, bias)
