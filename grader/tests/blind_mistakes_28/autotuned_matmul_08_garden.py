# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product, autotuned; a long K over a small result is cut into parts that a second kernel adds up."""

import torch
import triton
import triton.language as tl

PARTS = 4


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 4, 8),
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 64, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_tiles = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * n_tiles
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def epilogue(sums, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return tl.maximum(sums + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    CUTS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c[part] = the part of a @ b from one stretch of K; with CUTS = 1 the whole product."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = rows[:, None] < M
    col_mask = cols[None, :] < N

    stretch = tl.cdiv(tl.cdiv(K, BLOCK_K), CUTS) * BLOCK_K
    begin = part * stretch
    end = tl.minimum(begin + stretch, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=row_mask & (ks[None, :] < K), other=0.0,
        )  # fmt: skip
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks[:, None] < K) & col_mask, other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    base = c_ptr + part.to(tl.int64) * stride_cp
    spots = base + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(spots, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


@triton.jit
def add_up_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_pp, stride_cm, stride_cn,
    CUTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """c = the sum of the CUTS parts, always in the same order, with the epilogue."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, 1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    spots = parts_ptr + rows[:, None] * N + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for part in range(CUTS):
        acc += tl.load(spots + part * stride_pp, mask=mask, other=0.0)
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    spots = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(spots, acc.to(c_ptr.dtype.element_ty), mask=mask)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # Up to 2^20 elements there are fewer tiles than SMs, and the parts take 16 MiB at most.
    cuts = PARTS if M * N <= 2**20 and K >= 2048 else 1

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), cuts

    if cuts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(),
            CUTS=1, BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    parts = torch.empty((cuts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, parts, bias, M, N, K, *a.stride(), *b.stride(), M * N, N, 1, CUTS=cuts, BIAS_RELU=False
    )
    add_up_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
        parts, out, bias, M, N, M * N, *out.stride(),
        CUTS=cuts, BIAS_RELU=bias_relu, BLOCK_M=16, BLOCK_N=128,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
