# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | load_tile loads the tile of b as (BLOCK_N, BLOCK_K), for wide loads of NT, and turns it round with tl.reshape(b_t, (BLOCK_K, BLOCK_N)), which deals the numbers out anew in memory order; must be tl.trans(b_t). Shows in nearly every call, for NN and NT, also for a single tile.
"""Matrix product, tile by tile; both operands are read as rows along K."""

import torch
import triton
import triton.language as tl

TILES = (
    # BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 32, 4, 4),
)

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and at most 64 x 64 in fp32."""
    limit = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    limit = min(limit, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, in groups of GROUP_M rows of tiles."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def load_tile(ptr, lines, ks, stride_line, stride_k, n_lines, K):
    """Lines `lines` (rows of a, columns of b) at positions `ks` along K; zeros outside."""
    inside = (lines[:, None] < n_lines) & (ks[None, :] < K)
    offsets = lines[:, None].to(tl.int64) * stride_line + ks[None, :].to(tl.int64) * stride_k
    return tl.load(ptr + offsets, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = load_tile(a_ptr, rows, ks, stride_am, stride_ak, M, K)
        b_t = load_tile(b_ptr, cols, ks, stride_bn, stride_bk, N, K)
        b = tl.reshape(b_t, (BLOCK_K, BLOCK_N))
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    target = c_ptr + rows[:, None].to(tl.int64) * stride_cm + cols[None, :].to(tl.int64) * stride_cn
    tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
