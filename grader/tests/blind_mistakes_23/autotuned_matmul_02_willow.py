# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | _launch passes partial.stride(1) (one row) to combine_kernel as the distance between two slabs of partial sums: slab s is read s rows further down instead of M rows, so the result adds neighbouring rows of slab 0. It should be partial.stride(0); only M = 1 is right.
"""Matrix product with K split over programs: partial sums in fp32, then a second kernel adds them up."""

import torch
import triton
import triton.language as tl


def cfg(bm, bn, bk, stages, warps):
    return triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [
    cfg(128, 256, 64, 3, 8),
    cfg(256, 128, 64, 3, 8),
    cfg(128, 128, 64, 3, 8),
    cfg(64, 128, 64, 4, 4),
    cfg(64, 64, 64, 3, 4),
    cfg(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    is_fp32 = named_args["a_ptr"].dtype == torch.float32
    limit = min(64 if is_fp32 else 256, named_args["M"], named_args["N"])
    good = []
    for c in configs:
        if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit:
            good.append(c)
    return good if len(good) > 0 else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    # row by row; with K split the strips are short anyway
    across = tl.cdiv(N, BLOCK_N)
    return tile // across * BLOCK_M, tile % across * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, p_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_ps, stride_pm,
    SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """p[split] = a[:, part] @ b[part, :], where part is one of SPLITS pieces of K. An empty piece gives 0."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    split = tl.program_id(1)
    r = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    c = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]

    piece = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    lo = split * piece
    hi = tl.minimum(lo + piece, K)

    lane = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(lo, hi, BLOCK_K):
        ks = k + lane
        ka = ks[None, :]
        kb = ks[:, None]
        a = tl.load(a_ptr + r * stride_am + ka * stride_ak, mask=(r < M) & (ka < hi), other=0.0)
        b = tl.load(b_ptr + kb * stride_bk + c * stride_bn, mask=(kb < hi) & (c < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    tl.store(p_ptr + split.to(tl.int64) * stride_ps + r * stride_pm + c, acc, mask=(r < M) & (c < N))


@triton.jit
def combine_kernel(
    p_ptr, stride_ps, c_ptr, stride_cm, stride_cn, bias_ptr, M, N,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = sum of the partial sums, in a fixed order, with the epilogue; a slab of p is a contiguous (M, N)."""
    m, n = place(tl.program_id(0), M, N, ROWS, COLS)
    r = (m + tl.arange(0, ROWS)).to(tl.int64)
    c = (n + tl.arange(0, COLS)).to(tl.int64)
    inside = (r < M)[:, None] & (c < N)[None, :]
    at = p_ptr + r[:, None] * N + c[None, :]
    total = tl.zeros((ROWS, COLS), tl.float32)
    for s in range(SPLITS):
        total += tl.load(at, mask=inside, other=0.0)
        at += stride_ps
    if BIAS_RELU:
        bias = tl.load(bias_ptr + c, mask=c < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    where = c_ptr + r[:, None] * stride_cm + c[None, :] * stride_cn
    tl.store(where, total.to(c_ptr.dtype.element_ty), mask=inside)


def how_many_splits(M, N):
    """More pieces if C alone has too few tiles to fill the card."""
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    if tiles <= 16:
        return 8
    if tiles <= 66:
        return 4
    return 2


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    splits = how_many_splits(M, N)
    partial = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)

    partial_kernel[grid](
        a, b, partial, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), partial.stride(0), N,
        SPLITS=splits,
    )  # fmt: skip

    rows, cols = 16, 128
    combine_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        partial, partial.stride(1), out, out.stride(0), out.stride(1), bias, M, N,
        SPLITS=splits, BIAS_RELU=bias_relu, ROWS=rows, COLS=cols, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue is in the second kernel, still in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
