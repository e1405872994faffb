# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Split K with blocks dealt out in turn, fp32 atomic additions into a zeroed scratch matrix with `reset_to_zero`, and a second kernel with the epilogue; one and the same kernel stores directly where K is not split.
"""Matrix product; a small result with a long K is summed by several programs a tile, which add atomically."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 4, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, cols, N, BIAS_RELU: tl.constexpr):
    """The fp32 sums as they are, or relu(sums + bias)."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    return acc


# With SHARES > 1 each trial of the autotuner adds to c, which must be 0 before it.
@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K"], reset_to_zero=["c_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)  # fmt: skip
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SHARES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, share) sums every SHARES-th block of K, and stores its tile, or adds it to fp32 sums."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    share = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(share * BLOCK_K, K, SHARES * BLOCK_K):
        k = start + ks
        a = tl.load(a_rows + k[None, :] * stride_ak, mask=row_exists & (k[None, :] < K), other=0.0)
        b = tl.load(b_cols + k[:, None] * stride_bk, mask=(k[:, None] < K) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    if SHARES == 1:
        acc = finish(acc, bias_ptr, cols, N, BIAS_RELU)
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)
    else:
        tl.atomic_add(c_ptrs, acc, mask=row_exists & col_exists, sem="relaxed")


@triton.jit
def finish_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_sums, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c from complete fp32 sums, with the epilogue; tiles in rows."""
    across = tl.cdiv(N, COLS)
    pid = tl.program_id(axis=0)
    rows = (pid // across * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % across * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    acc = tl.load(sums_ptr + rows[:, None] * stride_sums + cols[None, :], mask=inside, other=0.0)
    acc = finish(acc, bias_ptr, cols, N, BIAS_RELU)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _shares(M, N, K):
    """How many programs share the K of a tile: more than one where there are few tiles and many steps."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    if tiles <= 16 and K >= 1024:
        return 8
    return 4 if tiles <= 32 and K >= 512 else 1


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    shares = _shares(M, N, K)
    target = out if shares == 1 else torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), shares)  # noqa: E731
    matmul_kernel[grid](
        a, b, target, bias, M, N, K, *a.stride(), *b.stride(), *target.stride(),
        BIAS_RELU=bias_relu, SHARES=shares,
    )  # fmt: skip
    if shares > 1:
        finish_kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 64),)](
            target, out, bias, M, N, target.stride(0), *out.stride(),
            BIAS_RELU=bias_relu, ROWS=32, COLS=64,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
