# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `product_kernel` the masks along K are `lanes[None, :] < K - k` and `lanes[:, None] < K - k`; they should be `< end - k`, the end of the program's own share (or the share a multiple of BLOCK_K). Where K is split (K >= 256 and M * N <= 524288) and ceil(K / 4) is no multiple of BLOCK_K, as for K = 257, the last block of a share reaches into the next share and its products are added twice; K = 384 with BLOCK_K 32, K = 4096 and smaller K are right.
"""Matrix product that shares a long K among programs: they add to an fp32 matrix, and a second launch rounds it."""

import torch
import triton
import triton.language as tl

SHARES = 4


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
    """Tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
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
def finished(acc, bias_ptr, cols, N, BIAS_RELU: tl.constexpr):
    """Bias and ReLU in fp32, where asked for."""
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    return acc


# The trials of the autotuner add to sums_ptr as well.
@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    prune_configs_by={"early_config_prune": fitting},
    reset_to_zero=["sums_ptr"],
)
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, sums_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    share = tl.cdiv(K, SPLIT)
    begin = tl.program_id(1) * share
    end = tl.minimum(begin + share, K)
    lanes = tl.arange(0, BLOCK_K)
    ks = begin + lanes
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_ok & (lanes[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(lanes[:, None] < K - k) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if SPLIT == 1:
        acc = finished(acc, bias_ptr, cols, N, BIAS_RELU)
        c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)
    else:
        tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok, sem="relaxed")


@triton.jit
def round_kernel(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, COLS)
    pid = tl.program_id(0)
    rows = (pid // tiles_n * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (pid % tiles_n * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    sums = tl.load(sums_ptr + rows[:, None] * N + cols[None, :], mask=inside, other=0.0)
    sums = finished(sums, bias_ptr, cols, N, BIAS_RELU)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # A small result with a long K has too few tiles for the GPU.
    split = SHARES if K >= 256 and M * N <= 512 * 1024 else 1
    sums = torch.zeros((M, N) if split > 1 else (1, 1), device=a.device, dtype=torch.float32)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),
        split,
    )
    product_kernel[grid](
        a, b, out, bias, sums, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, SPLIT=split,
    )  # fmt: skip
    if split > 1:
        rows, cols = 32, 64
        round_kernel[(triton.cdiv(M, rows) * triton.cdiv(N, cols),)](
            sums, out, bias, M, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, ROWS=rows, COLS=cols
        )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the launch that stores has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
