# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | triton.autotune of matmul_kernel lacks reset_to_zero=["sum_ptr"]: the kernel adds to `sums` by tl.atomic_add, the autotuner's trials run on the same `sums`, and so on a GPU the first call with new sizes or dtypes, the one in which the trials run, is wrong (sums many times too large) in both functions; later calls with the same sizes are right, and so is the interpreter, which runs no trials
"""Matrix product with K shared among programs where the result is small, then one pass for the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
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
    n_tiles = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * n_tiles) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * n_tiles)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """sums += a @ b in fp32; SPLITS programs share a tile, and each takes every SPLITS-th block of K."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    share = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok, col_ok = rows[:, None] < M, cols[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(share * BLOCK_K, K, SPLITS * BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_at, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_at, mask=(ks[:, None] < K) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sum_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok)


@triton.jit
def finish_kernel(
    sum_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = sums, or relu(sums + bias), rounded to the dtype of c."""
    m, n = place(tl.program_id(axis=0), M, N, ROWS, COLS, 1)
    rows = (m + tl.arange(0, ROWS)).to(tl.int64)
    cols = (n + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    x = tl.load(sum_ptr + rows[:, None] * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.maximum(x + bias[None, :], 0.0)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, x.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    splits = 4 if K >= 4 * max(M, N) else 1
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        splits,
    )
    matmul_kernel[grid](a, b, sums, M, N, K, *a.stride(), *b.stride(), SPLITS=splits)
    rows, cols = 16, 128
    finish_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
        sums, out, bias, M, N, *out.stride(), BIAS_RELU=bias_relu, ROWS=rows, COLS=cols
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
