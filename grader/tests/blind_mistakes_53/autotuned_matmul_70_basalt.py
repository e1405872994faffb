# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `product_kernel` both loads mask K with `ks[None, :] < K` and `ks[:, None] < K`; it should be `< stop`, the end of the program's own part (or `span` rounded up to a multiple of BLOCK_K). Where K is split (M * N <= 65536 and K >= 256) and `span = cdiv(K, 4)` is no multiple of BLOCK_K, the last step of a part reaches into the next part and those products are counted twice: wrong for (100, 300, 257) in all dtypes, with and without bias; right for K < 256, for K = 4096 and for large results.
"""Autotuned matrix product; where the result is small and K long, several programs share K."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 256, 64, 4, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]

# Below this many results there are too few tiles to fill a GPU, and K is shared among programs.
FEW_RESULTS = 65536
LONG_K = 256
PARTS = 4


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """relu(acc + bias), in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    SPLIT: tl.constexpr, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of a @ b over one of the SPLIT parts of K; c has one matrix for each part."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N

    if SPLIT == 1:
        tl.assume(K > 0)
        start = 0
        stop = K
    else:
        span = tl.cdiv(K, SPLIT)
        start = part * span
        stop = tl.minimum(start + span, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_exists & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=col_exists & (ks[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + part * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def merge_kernel(
    parts_ptr, c_ptr, bias_ptr, M, N, stride_pp, stride_pm, stride_cm, stride_cn,
    SPLIT: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Sum of the parts of K in their order, and the epilogue."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (tl.program_id(axis=1) * COLS + tl.arange(0, COLS)).to(tl.int64)
    exists = (rows[:, None] < M) & (cols[None, :] < N)
    ptrs = parts_ptr + rows[:, None] * stride_pm + cols[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        acc += tl.load(ptrs + part * stride_pp, mask=exists, other=0.0)
    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    split = PARTS if M * N <= FEW_RESULTS and K >= LONG_K else 1

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), split)

    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    if split == 1:
        product_kernel[grid](
            a, b, out, bias, M, N, K, *strides, 0, out.stride(0), out.stride(1), SPLIT=1, BIAS_RELU=bias_relu
        )
        return out
    parts = torch.empty((split, M, N), device=a.device, dtype=torch.float32)
    product_kernel[grid](
        a, b, parts, bias, M, N, K, *strides, M * N, N, 1, SPLIT=split, BIAS_RELU=False
    )
    merge_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 64))](
        parts, out, bias, M, N, M * N, N, out.stride(0), out.stride(1),
        SPLIT=split, BIAS_RELU=bias_relu, ROWS=16, COLS=64,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, True)
