# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | K is split among SLICES programs where M * N <= 512 * 512 and K >= 256; in matmul_kernel both loads are masked with `ks < K`, not with the end of the slice, so where span = cdiv(K, SLICES) is no multiple of BLOCK_K the last step of each slice but the last also takes the first columns of the next slice, which are counted twice (as K = 257: span 129); both functions, all dtypes, only such K with a small result. The masks should be `ks < end` (or span a multiple of BLOCK_K)
"""A tiled matrix product. Where the result has few tiles and K is long, several programs share K."""

import torch
import triton
import triton.language as tl

SMALL = 512 * 512  # elements of a result whose tiles alone do not fill a GPU
STRIP = 512  # columns of a program that adds up slices


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    # fp32 is computed without tensor cores, where a large tile unrolls into thousands of instructions.
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    band = tile // (wide * GROUP_M)
    rest = tile % (wide * GROUP_M)
    size = tl.minimum(high - band * GROUP_M, GROUP_M)
    tile_m = band * GROUP_M + rest % size
    tile_n = rest // size
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    SLICES: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Matrix s of c is the product over slice s of K; of one slice it is the result, with bias and ReLU if asked."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    span = tl.cdiv(K, SLICES)
    begin = part * span
    end = tl.minimum(begin + span, K)

    rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N).to(tl.int64)
    a_base = a_ptr + rows[:, None] * stride_am
    b_base = b_ptr + cols[None, :] * stride_bn
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a = tl.load(a_base + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_base + ks[:, None] * stride_bk, mask=col_ok & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c = c_ptr + part.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def join_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    SLICES: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of SLICES matrices (M, N) of fp32, always in the same order; then bias and ReLU if asked."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SLICES):
        total += tl.load(parts_ptr + (part * M + row) * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def slices_of(M, N, K):
    """Among how many programs K is shared: 128 or more of it for each, and at most 8."""
    return min(8, K // 128) if M * N <= SMALL and K >= 256 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    slices = slices_of(M, N, K)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        slices,
    )
    if slices == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), 0, *out.stride(),
            SLICES=1, BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out
    parts = torch.empty((slices, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, parts, bias, M, N, K, *a.stride(), *b.stride(), *parts.stride(),
        SLICES=slices, BIAS_RELU=False,
    )  # fmt: skip
    join_kernel[(M, triton.cdiv(N, STRIP))](
        parts, out, bias, M, N, *out.stride(), SLICES=slices, BIAS_RELU=bias_relu, BLOCK=STRIP
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
