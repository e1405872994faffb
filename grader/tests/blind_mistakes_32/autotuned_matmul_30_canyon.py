# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel sums even and odd steps along K in two accumulators and adds them at the end, but the odd step is odd = tl.dot(a1, b1, even, ...), which starts from the even sum and drops the earlier odd products: the result is twice the even steps plus the last odd one (twice the right one where K is at most BLOCK_K), wrong in every case of both functions; should be odd = tl.dot(a1, b1, odd, ...)
"""Matrix product with two independent sums a tile: one over the even and one over the odd steps along K."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# Two sums take the registers of one tile twice as large.
CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 64, 3, 4),
    _config(32, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    rows_of_tiles = tl.cdiv(M, BLOCK_M)
    group_tiles = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // group_tiles) * GROUP_M
    height = min(rows_of_tiles - first, GROUP_M)
    within = tile % group_tiles
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def step_of_k(a_rows, b_cols, ks, row_there, col_there, K, stride_ak, stride_bk):
    """The tiles of a and b for these numbers along K, 0 outside."""
    far = ks.to(tl.int64)
    a = tl.load(a_rows + far[None, :] * stride_ak, mask=row_there & (ks[None, :] < K), other=0.0)
    b = tl.load(b_cols + far[:, None] * stride_bk, mask=(ks[:, None] < K) & col_there, other=0.0)
    return a, b


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    row_there = rows[:, None] < M
    col_there = cols[None, :] < N
    a_rows = a_ptr + rows.to(tl.int64)[:, None] * stride_am
    b_cols = b_ptr + cols.to(tl.int64)[None, :] * stride_bn

    even = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    odd = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, 2 * BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a0, b0 = step_of_k(a_rows, b_cols, ks, row_there, col_there, K, stride_ak, stride_bk)
        a1, b1 = step_of_k(a_rows, b_cols, ks + BLOCK_K, row_there, col_there, K, stride_ak, stride_bk)
        even = tl.dot(a0, b0, even, input_precision="ieee")
        odd = tl.dot(a1, b1, even, input_precision="ieee")
    acc = even + odd

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_rows = c_ptr + rows.to(tl.int64)[:, None] * stride_cm
    tl.store(
        c_rows + cols.to(tl.int64)[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_there & col_there,
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
