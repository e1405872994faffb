# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | For a long K and a small result up to eight programs take interleaved blocks of K (s, s + SHARES, ...) and add to an fp32 matrix by relaxed atomics (cleared by the host, and by `reset_to_zero` in trials); a second kernel over flat numbers has the epilogue. Otherwise one launch; tiles are grouped by columns. Nothing is wrong.
"""Matrix product that, for a long K and a small result, lets several programs add to one tile of fp32 sums."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, stages, warps):
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def by_columns(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and column of a tile: GROUP_N columns of tiles are walked row by row."""
    size = GROUP_N * tl.cdiv(M, BLOCK_M)
    first = tile // size * GROUP_N
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - first, GROUP_N)
    inside = tile % size
    return inside // width * BLOCK_M, (first + inside % width) * BLOCK_N


@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, sums_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    SHARES: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (tile, s) takes the blocks s, s + SHARES, s + 2 SHARES, ... of K.

    With one share the tile goes to c, with the epilogue; with more it is added to sums, (M, N), contiguous.
    """
    m, n = by_columns(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, 4)
    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    begin = tl.program_id(axis=1) * BLOCK_K
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K - begin, SHARES * BLOCK_K):
        a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < K - done), other=0.0)
        b = tl.load(b_ptrs, mask=col_exists & (ks[:, None] < K - done), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += SHARES * BLOCK_K * stride_ak
        b_ptrs += SHARES * BLOCK_K * stride_bk
    if SHARES > 1:
        sums_ptrs = sums_ptr + rows[:, None] * N + cols[None, :]
        tl.atomic_add(sums_ptrs, acc, mask=row_exists & col_exists, sem="relaxed")
    else:
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            acc = tl.maximum(acc + bias[None, :], 0.0)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """The epilogue of BLOCK of the M * N sums, and their one rounding."""
    numbers = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    exists = numbers < M * N
    rows = (numbers // N).to(tl.int64)
    cols = (numbers % N).to(tl.int64)
    sums = tl.load(sums_ptr + numbers, mask=exists, other=0.0)
    if BIAS_RELU:
        sums += tl.load(bias_ptr + cols, mask=exists, other=0.0).to(tl.float32)
        sums = tl.maximum(sums, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # A result of 65536 numbers has at most 16 tiles of 64 x 64, if it is not very narrow: too few programs.
    shares = max(1, min(8, K // 512)) if M * N <= 65536 else 1
    sums = torch.zeros((M, N) if shares > 1 else (1,), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta), shares)  # noqa: E731
    product_kernel[grid](
        a, b, out, bias, sums, M, N, K, *a.stride(), *b.stride(), *out.stride(),
        SHARES=shares, BIAS_RELU=bias_relu,
    )  # fmt: skip
    if shares > 1:
        finish_kernel[(triton.cdiv(M * N, 1024),)](
            sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, BLOCK=1024
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel of a call adds the bias and clamps, in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
