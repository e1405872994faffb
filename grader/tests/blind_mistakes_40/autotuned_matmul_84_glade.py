# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `share_kernel`, `left = K - k` should be `left = end - k`: the last block of a share reaches into the next share, and those columns of K are added twice. Shows in both functions only where K is split (K >= 256 and M * N <= 512 * 512) and `tl.cdiv(K, 4)` is no multiple of BLOCK_K, as for 100 x 300 x 257; right for 24 x 16 x 4096 and wherever K is not split.
"""Matrix product that divides a long K among four programs where the result has few tiles."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try: no tile larger than the result, and 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of the result."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def share_kernel(
    a_ptr, b_ptr, dest_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_ds, stride_dm, stride_dn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, s) sums share s of K for its tile, and stores the sums in matrix s of dest."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    share = tl.cdiv(K, SPLITS)
    begin = tl.program_id(axis=1) * share
    end = tl.minimum(begin + share, K)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + (begin + ks)[None, :] * stride_ak
    b_ptrs = b_ptr + (begin + ks)[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        left = K - k
        a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=col_exists & (ks[:, None] < left), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    dest_ptr += tl.program_id(axis=1).to(tl.int64) * stride_ds
    dest_ptrs = dest_ptr + rows[:, None] * stride_dm + cols[None, :] * stride_dn
    tl.store(dest_ptrs, acc.to(dest_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def combine_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c is the sum of the SPLITS matrices of parts, (M, N) each, contiguous and fp32."""
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, COLS)
    rows = pid // across * ROWS + tl.arange(0, ROWS).to(tl.int64)
    cols = pid % across * COLS + tl.arange(0, COLS).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    parts_ptrs = parts_ptr + rows[:, None] * N + cols[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in tl.static_range(SPLITS):
        total += tl.load(parts_ptrs, mask=inside, other=0.0)
        parts_ptrs += M * N
    if BIAS_RELU:
        total = epilogue(total, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    splits = 4 if K >= 256 and M * N <= 512 * 512 else 1
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta), splits)  # noqa: E731
    if splits == 1:
        share_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(),
            SPLITS=1, BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    parts = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    share_kernel[grid](
        a, b, parts, bias, M, N, K, *a.stride(), *b.stride(), *parts.stride(),
        SPLITS=splits, BIAS_RELU=False,
    )  # fmt: skip
    combine_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        parts, out, bias, M, N, *out.stride(), SPLITS=splits, BIAS_RELU=bias_relu, ROWS=16, COLS=64
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums, rounded once; the result goes to `out` where one is given."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel adds the bias and clamps, in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
