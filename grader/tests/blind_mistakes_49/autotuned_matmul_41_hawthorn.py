# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Unusual: one kernel serves for a single launch and for 8 shares of K (`tl.num_programs(1)`, a third stride for the parts, fp32 parts in memory), and a second kernel adds the parts by `tl.reduce` with its own function and has the epilogue; deterministic, no atomics.
"""Matrix product in one launch, or in two where the result is small and K long: parts of K, then their sum."""

import torch
import triton
import triton.language as tl

LONG_K, FEW_ELEMENTS = 512, 256 * 1024


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result can fill; fp32 has no tensor cores and takes 64 x 64."""
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, column by column within GROUP_M tile rows."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def _plus(x, y):
    return x + y


@triton.jit
def _finish(sums, bias_ptr, cols, N, BIAS_RELU: tl.constexpr):
    """The epilogue, in fp32."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    return sums


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def share_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, M, N, K,
    stride_xm, stride_xk, stride_wk, stride_wn, stride_yp, stride_ym, stride_yn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """y[p] = x @ w over share p of K; the programs of axis 1 are the shares, whole numbers of BLOCK_K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(1)
    share = tl.cdiv(tl.cdiv(K, BLOCK_K), tl.num_programs(1)) * BLOCK_K
    start = part * share
    stop = tl.minimum(start + share, K)

    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    in_rows = rows[:, None] < M
    in_cols = cols[None, :] < N
    x_ptrs = x_ptr + rows[:, None] * stride_xm + (start + ks)[None, :] * stride_xk
    w_ptrs = w_ptr + (start + ks)[:, None] * stride_wk + cols[None, :] * stride_wn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        x = tl.load(x_ptrs, mask=in_rows & (ks[None, :] < K - k), other=0.0)
        w = tl.load(w_ptrs, mask=(ks[:, None] < K - k) & in_cols, other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
        x_ptrs += BLOCK_K * stride_xk
        w_ptrs += BLOCK_K * stride_wk

    acc = _finish(acc, bias_ptr, cols, N, BIAS_RELU)
    y_ptrs = y_ptr + part.to(tl.int64) * stride_yp + rows[:, None] * stride_ym + cols[None, :] * stride_yn
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=in_rows & in_cols)


@triton.jit
def total_kernel(
    parts_ptr, y_ptr, bias_ptr, M, N, stride_pp, stride_pm, stride_pn, stride_ym, stride_yn,
    BIAS_RELU: tl.constexpr, PARTS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """y = the sum of the PARTS matrices, always added in the same order."""
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, COLS)
    rows = (pid // tiles_n * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % tiles_n * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    parts = tl.arange(0, PARTS).to(tl.int64)[:, None, None]
    places = (rows[:, None] * stride_pm + cols[None, :] * stride_pn)[None, :, :]
    values = tl.load(parts_ptr + parts * stride_pp + places, mask=inside[None, :, :], other=0.0)
    sums = _finish(tl.reduce(values, 0, _plus), bias_ptr, cols, N, BIAS_RELU)
    y_ptrs = y_ptr + rows[:, None] * stride_ym + cols[None, :] * stride_yn
    tl.store(y_ptrs, sums.to(y_ptr.dtype.element_ty), mask=inside)


def _product(x, w, bias, out, bias_relu):
    (M, K), N = x.shape, w.shape[1]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    shares = 8 if K >= LONG_K and M * N <= FEW_ELEMENTS else 1
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        shares,
    )
    if shares == 1:
        share_kernel[grid](
            x, w, out, bias, M, N, K, *x.stride(), *w.stride(), 0, *out.stride(), BIAS_RELU=bias_relu
        )
        return out
    parts = torch.empty((shares, M, N), device=x.device, dtype=torch.float32)
    share_kernel[grid](
        x, w, parts, bias, M, N, K, *x.stride(), *w.stride(), *parts.stride(), BIAS_RELU=False
    )
    rows, cols = 8, 64
    total_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        parts, out, bias, M, N, *parts.stride(), *out.stride(),
        BIAS_RELU=bias_relu, PARTS=shares, ROWS=rows, COLS=cols,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides, with fp32 sums and one rounding."""
    return _product(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last launch has the epilogue."""
    return _product(a, b, bias, out, bias_relu=True)
