# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `c = acc.to(c_ptr.dtype.element_ty)` stands before `c = tl.maximum(c + bias[None, :], 0.0)` in `matmul_kernel`: bias and sum are added in 16 bits, after a first rounding; bias and ReLU belong to the fp32 acc, the conversion behind them. Shows in `matmul_bias_relu` for fp16 and bf16 (exact cases at once), not for fp32. (2) `c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn` uses int32 rows and cols (a and b use `.to(tl.int64)`): the offset wraps where `out` reaches beyond 2^31 elements, in both functions.
"""Autotuned matrix product whose loop along K is unrolled: each turn multiplies several pairs of tiles."""

import torch
import triton
import triton.language as tl

# BLOCK_K counts one pair of tiles, so a stage holds UNROLL of them.
CONFIGS = [
    triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": 32, "UNROLL": 2}, num_stages=3, num_warps=8
    )
    for block_m, block_n in ((128, 256), (256, 128), (128, 128))
] + [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "UNROLL": 2}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "UNROLL": 1}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result fills, and for fp32 the last config alone."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    M, N = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= M and c.kwargs["BLOCK_N"] <= N]
    return kept if kept else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    group, within = tile // (GROUP_M * tiles_n), tile % (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, 8)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_exists, col_exists = rows[:, None] < M, cols[None, :] < N

    a_ptrs = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K * UNROLL):
        for part in tl.static_range(UNROLL):
            left = K - k - part * BLOCK_K
            a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < left), other=0.0)
            b = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_exists, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_ptrs += BLOCK_K * stride_ak
            b_ptrs += BLOCK_K * stride_bk

    c = acc.to(c_ptr.dtype.element_ty)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
        c = tl.maximum(c + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, c, mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
