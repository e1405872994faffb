# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | For K of at least 2048 and a small result, eight programs add to an fp32 workspace by `tl.atomic_add` (`torch.zeros`, and `reset_to_zero` for the trials) and a second kernel has epilogue and rounding; otherwise one program a tile. Both kernels share the jitted loop `sum_range`, whose range of K is in whole blocks.
"""Matrix product; where the result is small and K is long, several programs share the sums of one tile."""

import torch
import triton
import triton.language as tl

SPLITS = 8
ELEMENTS = 1024

SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 4, 8),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 3, 4),
)
WHOLE = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SHAPES
]
SHARED = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": k}, num_stages=3, num_warps=4) for k in (32, 64)
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for small results, and for fp32, which has no tensor cores."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept or configs[-1:]


@triton.jit
def sum_range(
    a_ptr, b_ptr, rows, cols, begin, end, M, N, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The products of a tile with k from begin up to end, summed in fp32."""
    lane = tl.arange(0, BLOCK_K)
    ks = begin + lane
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(begin, end, BLOCK_K):
        left = end - k
        a = tl.load(a_ptrs, mask=row_exists & (lane[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(lane[:, None] < left) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.autotune(configs=WHOLE, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def whole_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One program has all of K for its tile."""
    tl.assume(K > 0)
    tile = tl.program_id(axis=0)
    high = tl.cdiv(M, BLOCK_M)
    wide = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * wide)
    within = tile % (GROUP_M * wide)
    height = tl.minimum(high - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % height) * BLOCK_M
    n = within // height * BLOCK_N
    rows = m.to(tl.int64) + tl.arange(0, BLOCK_M)
    cols = n.to(tl.int64) + tl.arange(0, BLOCK_N)

    acc = sum_range(
        a_ptr, b_ptr, rows, cols, 0, K, M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = acc + bias[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (cols[None, :] < N),
    )


@triton.autotune(
    configs=SHARED,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def shared_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """PARTS programs add their shares of a tile to sums, a contiguous fp32 matrix that holds zeros."""
    pid = tl.program_id(axis=0)
    tile = pid // PARTS
    part = pid % PARTS
    wide = tl.cdiv(N, BLOCK_N)
    rows = (tile // wide * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile % wide * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    # Whole blocks to each program, so that no two of them have a k in common.
    length = tl.cdiv(tl.cdiv(K, PARTS), BLOCK_K) * BLOCK_K
    begin = part * length
    end = tl.minimum(begin + length, K)
    acc = sum_range(
        a_ptr, b_ptr, rows, cols, begin, end, M, N, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=inside, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, size, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """Epilogue and the only rounding, element by element."""
    index = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    value = tl.load(sums_ptr + index, mask=inside, other=0.0)
    row = index // N
    col = index % N
    if BIAS_RELU:
        value += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        value = tl.where(value > 0.0, value, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, value.to(c_ptr.dtype.element_ty), mask=inside)


def _product(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    steps = (*a.stride(), *b.stride())
    if K < 2048 or M * N > 512 * 512:
        tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
        whole_kernel[tiles](a, b, out, bias, M, N, K, *steps, *out.stride(), BIAS_RELU=bias_relu)
        return out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    shares = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]) * SPLITS,
    )
    shared_kernel[shares](a, b, sums, M, N, K, *steps, PARTS=SPLITS)
    finish_kernel[(triton.cdiv(M * N, ELEMENTS),)](
        sums, out, bias, M * N, N, *out.stride(), BIAS_RELU=bias_relu, BLOCK=ELEMENTS
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums, for any strides."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), rounded once."""
    return _product(a, b, bias, out, True)
