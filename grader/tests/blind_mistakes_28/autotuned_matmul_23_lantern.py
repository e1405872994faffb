# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) The autotuner of sums_kernel has no reset_to_zero=["sums_ptr"]: its trials add to the same zeroed workspace by tl.atomic_add, so the first call of both functions with new sizes, where more than one config is tried, gives a multiple of the right sums (in matmul_bias_relu before the bias). (2) finish_kernel stores at `rows * stride_cm + cols` without a column stride of out: both functions are wrong where out.stride(1) is not 1 (transposed out, every second column); it should be cols[None, :] * stride_cn.
"""K is divided among programs, which add their shares to an fp32 workspace; a second kernel finishes."""

import torch
import triton
import triton.language as tl

CANDIDATES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "SPLIT_K": split}, num_stages=stages, num_warps=warps)
    for m, n, k, split, stages, warps in (
        (128, 256, 64, 1, 3, 8),
        (128, 128, 64, 1, 3, 8),
        (128, 128, 64, 4, 3, 8),
        (64, 64, 64, 4, 3, 4),
        (32, 32, 64, 8, 3, 4),
        (32, 32, 32, 1, 3, 4),
    )
]


def worth_trying(configs, named_args, **kwargs):
    M, N, K = named_args["M"], named_args["N"], named_args["K"]
    top = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    kept = []
    for config in configs:
        tile = config.kwargs
        if tile["BLOCK_M"] > min(M, top) or tile["BLOCK_N"] > min(N, top):
            continue
        if tile["SPLIT_K"] * tile["BLOCK_K"] <= max(K, tile["BLOCK_K"]):
            kept.append(config)
    return kept or configs[-1:]


@triton.autotune(
    configs=CANDIDATES,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": worth_trying},
)
@triton.jit
def sums_kernel(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    """Adds a share of a @ b to sums, (M, N), fp32 and contiguous: program (tile, share) of the grid."""
    tile = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    # Shares are whole blocks of K, so that two of them never meet inside a block.
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K) * BLOCK_K
    start = tl.program_id(1) * share
    stop = tl.minimum(start + share, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
            mask=(rows < M)[:, None] & (ks < K)[None, :],
            other=0.0,
        )
        b = tl.load(
            b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=(ks < K)[:, None] & (cols < N)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(
        sums_ptr + rows[:, None] * N + cols[None, :],
        acc,
        mask=(rows < M)[:, None] & (cols < N)[None, :],
        sem="relaxed",
    )


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """From fp32 sums to c: the epilogue, one rounding, and the layout of c."""
    tiles_n = tl.cdiv(N, COLS)
    tile = tl.program_id(0)
    rows = (tile // tiles_n * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (tile % tiles_n * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    y = tl.load(sums_ptr + rows[:, None] * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        y = tl.maximum(y + bias[None, :], 0.0)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :], y.to(c_ptr.dtype.element_ty), mask=inside)


def _both_kernels(a, b, bias, out, bias_relu):
    (M, K), (_, N) = a.shape, b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        meta["SPLIT_K"],
    )
    sums_kernel[grid](a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
        sums, out, bias, M, N, out.stride(0), BIAS_RELU=bias_relu, ROWS=16, COLS=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _both_kernels(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the bias added by the kernel that finishes."""
    return _both_kernels(a, b, bias, out, bias_relu=True)
