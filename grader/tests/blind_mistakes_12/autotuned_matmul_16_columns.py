# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | without out the result is a transposed view of a new (N, M) tensor, right in values and shape but not contiguous; it must be a new contiguous (M, N) tensor; shows in every call without out where M and N are above 1
"""Matmul in the order of BLAS: results lie column by column, and programs walk down the columns, too."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(32, 16, 32, 4, 2),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result can fill."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    return [
        c
        for c in configs
        if c.kwargs["BLOCK_M"] <= min(widest, named_args["M"]) and c.kwargs["BLOCK_N"] <= min(widest, named_args["N"])
    ] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and column of a tile; groups are GROUP_N columns of tiles wide, and are walked row by row."""
    in_group = GROUP_N * tl.cdiv(M, BLOCK_M)
    left = tile // in_group * GROUP_N
    width = tl.minimum(tl.cdiv(N, BLOCK_N) - left, GROUP_N)
    within = tile % in_group
    return (within // width) * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, lda_m, lda_k, ldb_k, ldb_n, ldc_m, ldc_n, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    im = (tl.arange(0, BLOCK_M) + m).to(tl.int64)
    jn = (tl.arange(0, BLOCK_N) + n).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        lk = tl.arange(0, BLOCK_K).to(tl.int64) + k
        a = tl.load(
            a_ptr + im[:, None] * lda_m + lk[None, :] * lda_k, mask=(im[:, None] < M) & (lk[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + lk[:, None] * ldb_k + jn[None, :] * ldb_n, mask=(lk[:, None] < K) & (jn[None, :] < N), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + jn, mask=jn < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + im[:, None] * ldc_m + jn[None, :] * ldc_n,
        acc.to(c_ptr.dtype.element_ty),
        mask=(im[:, None] < M) & (jn[None, :] < N),
    )


def _gemm(a, b, bias, c, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if c is None:
        # as cuBLAS has it: one column after the other
        c = torch.empty((N, M), device=a.device, dtype=a.dtype).t()

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    gemm_kernel[grid](
        a, b, c, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in fp32, rounded once at the end."""
    return _gemm(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _gemm(a, b, bias, out, bias_relu=True)
