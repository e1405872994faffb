# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | in partial_kernel the mask along K is `k + ks < K`, but a slice ends at `end`: where the slice length cdiv(K, SPLITS) is no multiple of BLOCK_K, the last step of every slice but the last reads on into the next slice, and those products are counted twice; both functions are wrong where K is split (K >= 128 and few tiles) and cdiv(K, SPLITS) is no multiple of BLOCK_K (K = 129, 150, 200, 257), right for K < 128, for many tiles, and for K like 128, 192, 384, 4096; it should be `k + ks < end`
"""Matrix product with K split among programs: their sums meet in an fp32 workspace, and a second kernel finishes.

A narrow result has few tiles, and a long K would leave most of the GPU idle. Slices of K give it more programs.
"""

import torch
import triton
import triton.language as tl

MOST_SPLITS = 8
SHORTEST_SLICE = 64
ENOUGH_PROGRAMS = 256


def candidate(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [
    candidate(128, 256, 64, 3, 8),
    candidate(256, 128, 64, 3, 8),
    candidate(128, 128, 64, 3, 8),
    candidate(64, 128, 64, 4, 4),
    candidate(64, 64, 64, 3, 4),
    candidate(32, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and no large ones for fp32, which has no tensor cores."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= limit] or configs[-1:]


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, am, ak, bk, bn,
    SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Add the product over one slice of K to one tile of sums, which is (M, N), fp32, contiguous and cleared."""
    down = tl.cdiv(M, BM)
    tile = tl.program_id(0)
    # Column by column: neighbours share a strip of b.
    i = tile % down * BM + tl.arange(0, BM)
    j = tile // down * BN + tl.arange(0, BN)
    far_i, far_j = i.to(tl.int64), j.to(tl.int64)
    ks = tl.arange(0, BK)

    length = tl.cdiv(K, SPLITS)
    begin = tl.program_id(1) * length
    end = tl.minimum(begin + length, K)

    x_ptrs = a_ptr + far_i[:, None] * am + (begin + ks)[None, :] * ak
    y_ptrs = b_ptr + (begin + ks)[:, None] * bk + far_j[None, :] * bn
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(begin, end, BK):
        inside = k + ks < K
        x = tl.load(x_ptrs, mask=(i < M)[:, None] & inside[None, :], other=0.0)
        y = tl.load(y_ptrs, mask=inside[:, None] & (j < N)[None, :], other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_ptrs += BK * ak
        y_ptrs += BK * bk

    spots = sums_ptr + far_i[:, None] * N + far_j[None, :]
    exists = (i < M)[:, None] & (j < N)[None, :]
    if SPLITS == 1:
        tl.store(spots, acc, mask=exists)
    else:
        tl.atomic_add(spots, acc, mask=exists, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, bias_ptr, c_ptr, M, N, cm, cn, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """c = sums, or relu(sums + bias), rounded once."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(0)
    i = pid // across * ROWS + tl.arange(0, ROWS)
    j = pid % across * COLS + tl.arange(0, COLS)
    far_i, far_j = i.to(tl.int64), j.to(tl.int64)
    exists = (i < M)[:, None] & (j < N)[None, :]
    sums = tl.load(sums_ptr + far_i[:, None] * N + far_j[None, :], mask=exists, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    tl.store(c_ptr + far_i[:, None] * cm + far_j[None, :] * cn, sums.to(c_ptr.dtype.element_ty), mask=exists)


def splits_for(M, N, K):
    """As many slices as fill the GPU, none of them shorter than SHORTEST_SLICE."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    return max(1, min(MOST_SPLITS, K // SHORTEST_SLICE, ENOUGH_PROGRAMS // tiles))


def product(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    splits = splits_for(M, N, K)
    partial_kernel[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), splits)](
        a, b, sums, M, N, K, *a.stride(), *b.stride(), SPLITS=splits
    )
    rows, cols = 16, 128
    finish_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        sums, bias, out, M, N, *out.stride(), BIAS_RELU=bias_relu, ROWS=rows, COLS=cols
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return product(a, b, bias, out, bias_relu=True)
