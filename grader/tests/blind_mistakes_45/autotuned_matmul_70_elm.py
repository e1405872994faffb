# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `matmul_kernel`, `acc = tl.dot(a, tl.reshape(b, (BLOCK_K, BLOCK_N)), acc, ...)`: b was loaded as BLOCK_N x BLOCK_K, and `tl.reshape` keeps the flat order instead of transposing. It should be `tl.trans(b)` (`b.T`). Both functions are wrong in all cases but N = K = 1.
"""Matrix product with bias and ReLU; tiles of b are read like rows of a weight, one row for each column of c."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, stages, warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=stages, num_warps=warps)


# Of each tile the tile of b passes through registers, so tiles stay at 128 x 128.
CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; for fp32, which has no tensor cores, small ones."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 128
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile of c."""
    across = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * across
    first = tile // in_group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One program for each BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    rows_64 = rows.to(tl.int64)
    cols_64 = cols.to(tl.int64)
    a_ptrs = a_ptr + rows_64[:, None] * stride_am + ks[None, :] * stride_ak
    # BLOCK_N x BLOCK_K: for a weight of shape (N, K) that was passed transposed, neighbours in memory.
    b_ptrs = b_ptr + cols_64[:, None] * stride_bn + ks[None, :] * stride_bk
    row_exists = rows[:, None] < M
    col_exists = cols[:, None] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    tl.assume(K > 0)
    for k in range(0, K, BLOCK_K):
        in_k = ks[None, :] < K - k
        a = tl.load(a_ptrs, mask=row_exists & in_k, other=0.0)
        b = tl.load(b_ptrs, mask=col_exists & in_k, other=0.0)
        acc = tl.dot(a, tl.reshape(b, (BLOCK_K, BLOCK_N)), acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows_64[:, None] * stride_cm + cols_64[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & (cols[None, :] < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
