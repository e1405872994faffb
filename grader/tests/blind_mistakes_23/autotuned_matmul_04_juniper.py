# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel loads one step ahead, but after the loop the tiles loaded last (a_now, b_now) are never multiplied: the last step along K is missing, and K <= BLOCK_K gives all 0. A last acc = tl.dot(a_now, b_now, acc) must follow the loop.
"""Lab 3. Tiles with hand-made prefetching: the next pair of tiles is on its way while the current one is multiplied."""

import torch
import triton
import triton.language as tl

# (BLOCK_M, BLOCK_N, BLOCK_K, stages, warps). The prefetched tiles live in registers, hence no 128 x 256.
SHAPES = (
    (128, 128, 32, 2, 8),
    (128, 64, 32, 2, 4),
    (64, 128, 32, 2, 4),
    (64, 64, 64, 2, 4),
    (64, 64, 32, 2, 4),
)

CONFIGS = []
for bm, bn, bk, stages, warps in SHAPES:
    CONFIGS.append(
        triton.Config(
            {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_N": 4}, num_stages=stages, num_warps=warps
        )
    )


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """The mirror image of the figure: GROUP_N columns of tiles are walked row by row."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group_size = GROUP_N * tiles_m
    first_col = tile // group_size * GROUP_N
    width = tl.minimum(tiles_n - first_col, GROUP_N)
    inside = tile % group_size
    tile_m = inside // width
    tile_n = first_col + inside % width
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.jit
def fetch(row_ptrs, col_ptrs, row_ok, col_ok, ks, K, stride_ak, stride_bk):
    k_ok = ks < K
    a = tl.load(row_ptrs + ks[None, :] * stride_ak, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
    b = tl.load(col_ptrs + ks[:, None] * stride_bk, mask=k_ok[:, None] & col_ok[None, :], other=0.0)
    return a, b


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = i < M
    col_ok = j < N
    row_ptrs = a_ptr + i[:, None] * stride_am
    col_ptrs = b_ptr + j[None, :] * stride_bn
    lane = tl.arange(0, BLOCK_K).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # prologue: the first pair
    a_now, b_now = fetch(row_ptrs, col_ptrs, row_ok, col_ok, lane, K, stride_ak, stride_bk)
    for k in range(BLOCK_K, K, BLOCK_K):
        # ask for the next pair first, then work on the one that has arrived
        a_next, b_next = fetch(row_ptrs, col_ptrs, row_ok, col_ok, k + lane, K, stride_ak, stride_bk)
        acc = tl.dot(a_now, b_now, acc, input_precision="ieee")
        a_now = a_next
        b_now = b_next

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=col_ok, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)

    c_ptrs = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok[:, None] & col_ok[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    def grid(meta):
        down = triton.cdiv(M, meta["BLOCK_M"])
        across = triton.cdiv(N, meta["BLOCK_N"])
        return (down * across,)

    sa, sb, sc = a.stride(), b.stride(), out.stride()
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, sa[0], sa[1], sb[0], sb[1], sc[0], sc[1], BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; fp32 sums, rounded once. The result goes to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
