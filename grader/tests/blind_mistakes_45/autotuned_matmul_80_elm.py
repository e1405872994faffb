# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: where the result has few tiles and K is long, programs add to a zeroed fp32 workspace by `tl.atomic_add` (with `reset_to_zero` for the trials), and a second kernel has the epilogue; all other sizes take a kernel with whole K.
"""Matrix product; few tiles and a long K: the programs of a tile add to fp32 sums, a second kernel ends it."""

import torch
import triton
import triton.language as tl

WIDE = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 4, 8), (64, 128, 64, 4, 4)]
NARROW = [(64, 64, 64, 3, 4), (64, 64, 32, 3, 4)]


def _configs(shapes):
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
        for m, n, k, stages, warps in shapes
    ]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32, computed without tensor cores, the last one."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Rows and columns of a tile."""
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    row = (first + within % height) * BLOCK_M
    column = (within // height) * BLOCK_N
    return row + tl.arange(0, BLOCK_M), column + tl.arange(0, BLOCK_N)


@triton.jit
def dot_between(
    a_ptr, b_ptr, rows, cols, M, N, begin, end, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """a[rows, begin:end] @ b[begin:end, cols] in fp32."""
    ks = begin + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < M)[:, None] & (ks < end)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=(ks < end)[:, None] & (cols < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        ks += BLOCK_K
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    return acc


@triton.jit
def finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows.to(tl.int64)[:, None] * stride_cm + cols.to(tl.int64)[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(
    configs=_configs([*WIDE, *NARROW]), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def whole_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One program has all of K."""
    rows, cols = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, 8)
    tl.assume(K > 0)
    acc = dot_between(
        a_ptr, b_ptr, rows, cols, M, N, 0, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


@triton.autotune(
    configs=_configs(NARROW),
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def shared_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K, share, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (tile, i) adds the i-th share of K to the sums, an (M, N) matrix of zeros."""
    rows, cols = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, 4)
    begin = tl.program_id(1) * share
    acc = dot_between(
        a_ptr, b_ptr, rows, cols, M, N, begin, tl.minimum(begin + share, K),
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K,
    )  # fmt: skip
    places = rows.to(tl.int64)[:, None] * N + cols[None, :]
    tl.atomic_add(sum_ptr + places, acc, mask=(rows < M)[:, None] & (cols < N)[None, :], sem="relaxed")


@triton.jit
def ending_kernel(
    sum_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    rows, cols = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, 1)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    acc = tl.load(sum_ptr + rows.to(tl.int64)[:, None] * N + cols[None, :], mask=inside, other=0.0)
    finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # Shares of at least 256, as many as bring four 64 x 64 tiles to each SM.
    shares = min(K // 256, triton.cdiv(528, triton.cdiv(M, 64) * triton.cdiv(N, 64)), 16)
    if shares < 2 or M * N > 1024 * 1024:
        whole_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
            a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    shared_kernel[
        lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), shares)
    ](a, b, sums, M, N, K, triton.cdiv(K, shares), *a.stride(), *b.stride())
    ending_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](
        sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, BLOCK_M=32, BLOCK_N=32
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b; fp32 sums, rounded once. The last digits may differ between two calls where K is shared."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue is in the last kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
