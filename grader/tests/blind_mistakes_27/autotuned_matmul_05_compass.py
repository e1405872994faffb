# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | where the columns of `out` lie farther apart than its rows (out.stride(0) < out.stride(1), a transposed out), _launch computes out.T = b.T @ a.T, but matmul_kernel still adds the bias along the columns of what it computes (`bias[None, :]`, loaded at cols), which are the rows of out then. Shows in matmul_bias_relu with a transposed out only: element (i, j) gets bias[i] instead of bias[j], and bias is read past its end where M > N. matmul and all other layouts are right. After the exchange the bias has to be loaded at rows and added as bias[:, None], or the exchange left out.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_N": 6}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 256, 32, 4, 8),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that are no larger than the result; if none is, the smallest."""
    bound = min(named_args["M"], named_args["N"])
    if named_args["c_ptr"].dtype == torch.float32:
        bound = min(bound, 64)
    small = [c for c in configs if c.kwargs["BLOCK_M"] <= bound and c.kwargs["BLOCK_N"] <= bound]
    return small if small else configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of a tile; GROUP_N columns of tiles are walked from top to bottom."""
    in_group = GROUP_N * tl.cdiv(M, BLOCK_M)
    left = tile // in_group * GROUP_N
    width = min(tl.cdiv(N, BLOCK_N) - left, GROUP_N)
    within = tile % in_group
    return (within // width) * BLOCK_M, (left + within % width) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_N)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    below_m = rows[:, None] < M
    below_n = cols[None, :] < N

    a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    a_step = BLOCK_K * tl.cast(stride_ak, tl.int64)
    b_step = BLOCK_K * tl.cast(stride_bk, tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        left = K - done
        a = tl.load(a_at, mask=below_m & (ks[None, :] < left), other=0.0)
        b = tl.load(b_at, mask=(ks[:, None] < left) & below_n, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += a_step
        b_at += b_step

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=below_m & below_n)


def _launch(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    c = out
    if out.stride(0) < out.stride(1):
        # Lanes side by side store side by side: of a transposed result compute the transpose.
        a, b, c = b.T, a.T, out.T
    M, K = a.shape
    N = b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
