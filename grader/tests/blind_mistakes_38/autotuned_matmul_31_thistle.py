# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product in pairs of tiles: each tile of a, once loaded, meets two neighbouring tiles of b."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate; a program owns BLOCK_M rows and twice BLOCK_N columns."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 64, 64, 3, 8),
    _config(64, 64, 64, 3, 4),
    _config(128, 32, 64, 3, 4),
    _config(64, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Pairs no larger than the result, and of 64 x 64 in all for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], 2 * c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the BLOCK_M x BLOCK_N pieces of c."""
    across = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * across) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * across)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(acc, c_ptr, bias_ptr, rows, cols, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Bias and ReLU where asked, the one rounding, and the store of a tile."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns two tiles side by side."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, 2 * BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    left = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    right = left + BLOCK_N
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows[:, None] < M
    left_ok = left[None, :] < N
    right_ok = right[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    l_ptrs = b_ptr + ks[:, None] * stride_bk + left[None, :] * stride_bn
    r_ptrs = b_ptr + ks[:, None] * stride_bk + right[None, :] * stride_bn

    acc_l = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc_r = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        k_row = ks[None, :] < K - k
        k_col = ks[:, None] < K - k
        a = tl.load(a_ptrs, mask=row_ok & k_row, other=0.0)
        acc_l = tl.dot(a, tl.load(l_ptrs, mask=k_col & left_ok, other=0.0), acc_l, input_precision="ieee")
        acc_r = tl.dot(a, tl.load(r_ptrs, mask=k_col & right_ok, other=0.0), acc_r, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        l_ptrs += BLOCK_K * stride_bk
        r_ptrs += BLOCK_K * stride_bk

    finish(acc_l, c_ptr, bias_ptr, rows, left, M, N, stride_cm, stride_cn, BIAS_RELU)
    finish(acc_r, c_ptr, bias_ptr, rows, right, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    pairs = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, 2 * meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (pairs(meta),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
