# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product with the tail of K peeled off the loop; the fused function has a kernel of its own."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for bm, bn, bk, s, w in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (128, 64, 64, 4, 4),
        (64, 64, 32, 4, 4),
        (32, 32, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """No tile wider than the result, and none above 64 for fp32, which has no tensor cores here."""
    size = min(named_args["M"], named_args["N"])
    if named_args["c_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """The tile's row numbers as a column and its column numbers as a row, in int64."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (tiles_n * GROUP_M)
    within = tile % (tiles_n * GROUP_M)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    m = (group * GROUP_M + within % height) * BLOCK_M
    n = (within // height) * BLOCK_N
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    return rows[:, None], cols[None, :]


@triton.jit
def products(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The sums of one tile: whole blocks of K without a mask along K, then what is left."""
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K * BLOCK_K
    for k in range(0, whole, BLOCK_K):
        at = k + ks
        a = tl.load(a_rows + at[None, :] * stride_ak, mask=rows < M, other=0.0)
        b = tl.load(b_cols + at[:, None] * stride_bk, mask=cols < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if whole < K:
        last = whole + ks
        a_tail = tl.load(a_rows + last[None, :] * stride_ak, mask=(rows < M) & (last < K)[None, :], other=0.0)
        b_tail = tl.load(b_cols + last[:, None] * stride_bk, mask=(last < K)[:, None] & (cols < N), other=0.0)
        acc = tl.dot(a_tail, b_tail, acc, input_precision="ieee")
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    c_ptr, a_ptr, b_ptr, M, N, K, stride_cm, stride_cn, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    rows, cols = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    sums = products(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    exists = (rows < M) & (cols < N)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=exists)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_bias_relu_kernel(
    c_ptr, a_ptr, b_ptr, bias_ptr, M, N, K, stride_cm, stride_cn, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    rows, cols = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    sums = products(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    sums += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    sums = tl.where(sums > 0.0, sums, 0.0)
    exists = (rows < M) & (cols < N)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=exists)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](out, a, b, M, N, K, *out.stride(), *a.stride(), *b.stride())
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_bias_relu_kernel[grid](
        out, a, b, bias, M, N, K, *out.stride(), *a.stride(), *b.stride()
    )
    return out
