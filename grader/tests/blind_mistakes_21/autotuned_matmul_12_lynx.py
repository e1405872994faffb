# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matmul with K split among programs where the result is small: fp32 partial sums, then a kernel that adds them."""

import torch
import triton
import triton.language as tl

SUM_ROWS = 16
SUM_COLS = 64


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(32, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def bias_and_relu(values, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(values + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, s) sums k from s * share to (s + 1) * share, and stores to matrix s of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    s = tl.program_id(axis=1)
    begin = s * share
    end = tl.minimum(begin + share, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        x = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_ok & (ks[None, :] < end), other=0.0)
        y = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_ok & (ks[:, None] < end), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = bias_and_relu(acc, bias_ptr, cols, N)
    c_at = c_ptr + s.to(tl.int64) * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


@triton.jit
def sum_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, parts, stride_ps, stride_pm, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the partial matrices, always in the same order, with the epilogue."""
    wide = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // wide * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % wide * COLS + tl.arange(0, COLS)).to(tl.int64)
    ok = (rows[:, None] < M) & (cols[None, :] < N)
    at = part_ptr + rows[:, None] * stride_pm + cols[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(parts):
        total += tl.load(at, mask=ok, other=0.0)
        at += stride_ps
    if BIAS_RELU:
        total = bias_and_relu(total, bias_ptr, cols, N)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=ok)


def shares(M, N, K):
    """Number of parts, and how many k each has (a multiple of 64)."""
    if K < 1024 or M * N > 512 * 512:
        return 1, K
    share = triton.cdiv(triton.cdiv(K, 8), 64) * 64
    return triton.cdiv(K, share), share


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts, share = shares(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    if parts == 1:
        matmul_kernel[grid](
            a, b, out, bias, M, N, K, share, *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    partial = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, partial, bias, M, N, K, share, *a.stride(), *b.stride(), M * N, N, 1, BIAS_RELU=False
    )
    blocks = triton.cdiv(M, SUM_ROWS) * triton.cdiv(N, SUM_COLS)
    sum_kernel[(blocks,)](
        partial, out, bias, M, N, parts, M * N, N, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, ROWS=SUM_ROWS, COLS=SUM_COLS,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b"""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)"""
    return _launch(a, b, bias, out, bias_relu=True)
