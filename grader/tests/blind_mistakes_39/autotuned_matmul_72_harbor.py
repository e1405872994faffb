# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In matmul_kernel K is split into SPLITS slices, first to last, but the loads of both operands are masked with at < K instead of at < last: where a slice, cdiv(K, 4), is no multiple of BLOCK_K (64, or 32 in the smallest config), its last step runs on into the next slice, and these products are counted twice (the last slice is right). Shows in both functions only where K is split, K >= 256 and M * N <= 512 * 512, with cdiv(K, 4) no multiple of BLOCK_K, as M, N, K = 100, 300, 257; right for K < 256, for K = 4096 and for large results. Both masks should compare with last.
"""Matrix product tile by tile, autotuned; small results with a long K are summed by several programs."""

import torch
import triton
import triton.language as tl

FOLD_M, FOLD_N = 32, 64


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    top = tile // per_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    inside = tile % per_group
    return (top + inside % height) * BLOCK_M, inside // height * BLOCK_N


@triton.jit
def bias_relu(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of c, or of one of SPLITS partial sums of c: axis 0 counts tiles, axis 1 slices of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = tl.arange(0, BLOCK_M).to(tl.int64) + m
    cols = tl.arange(0, BLOCK_N).to(tl.int64) + n
    has_row = (rows < M)[:, None]
    has_col = (cols < N)[None, :]

    span = tl.cdiv(K, SPLITS)
    first = part * span
    last = tl.minimum(first + span, K)

    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(first, last, BLOCK_K):
        at = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + at[None, :] * stride_ak, mask=has_row & (at < K)[None, :], other=0.0)
        b = tl.load(b_cols + at[:, None] * stride_bk, mask=has_col & (at < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = bias_relu(acc, bias_ptr, cols, N)
    c_tile = c_ptr + part * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=has_row & has_col)


@triton.jit
def fold_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Add the partial sums, (SPLITS, M, N) in fp32, always in the same order, and finish."""
    rows = tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    here = sums_ptr + rows[:, None] * N + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for part in tl.static_range(SPLITS):
        acc += tl.load(here + part * M * N, mask=inside, other=0.0)
    if BIAS_RELU:
        acc = bias_relu(acc, bias_ptr, cols, N)
    c_tile = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, with_bias):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # Few tiles leave most of the GPU idle: let four programs share the K of each.
    splits = 4 if K >= 256 and M * N <= 512 * 512 else 1

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits

    operands = (*a.stride(), *b.stride())
    if splits == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, *operands, 0, *out.stride(), BIAS_RELU=with_bias, SPLITS=1
        )
        return out
    sums = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, sums, bias, M, N, K, *operands, *sums.stride(), BIAS_RELU=False, SPLITS=splits
    )
    blocks = (triton.cdiv(M, FOLD_M), triton.cdiv(N, FOLD_N))
    fold_kernel[blocks](
        sums, out, bias, M, N, *out.stride(),
        BIAS_RELU=with_bias, SPLITS=splits, BLOCK_M=FOLD_M, BLOCK_N=FOLD_N,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, with_bias=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, with_bias=True)
