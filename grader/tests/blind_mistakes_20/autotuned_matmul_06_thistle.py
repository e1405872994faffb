# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) matmul_kernel: a share of K is tl.cdiv(K, SHARES) long, no multiple of BLOCK_K, and its loads are masked with K (ks < K) instead of with the end of the share (ks < hi), so the last step of a share also sums products of the next: wrong unless tl.cdiv(K, 4) is a multiple of BLOCK_K (or K = 1). (2) finish_kernel: the store adds cols without a column stride (stride_cn is missing), so a transposed out or an out of every second column is wrong.
"""Matrix product with K shared among programs, autotuned; a second kernel adds the shares, with bias and ReLU."""

import torch
import triton
import triton.language as tl

SHARES = 4  # programs for each tile: small results keep all SMs busy


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 32, 4, 4),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, work_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_work, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """work[share] = a[:, its ks] @ b[its ks, :], in fp32. No two programs store the same element."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    share = tl.program_id(axis=1)
    length = tl.cdiv(K, PARTS)
    lo = share * length
    hi = tl.minimum(lo + length, K)

    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(lo, hi, BLOCK_K):
        ks = k + lanes
        a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mine = work_ptr + share.to(tl.int64) * stride_work
    tl.store(mine + rows[:, None] * N + cols[None, :], acc, mask=row_ok & col_ok)


@triton.jit
def finish_kernel(
    work_ptr, c_ptr, bias_ptr, M, N, stride_work, stride_cm, BIAS_RELU: tl.constexpr, PARTS: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the shares, or relu(sum + bias): rounded only here."""
    wide = tl.cdiv(N, COLS)
    pid = tl.program_id(0)
    rows = ((pid // wide) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    cols = ((pid % wide) * COLS + tl.arange(0, COLS)).to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    plane = work_ptr + rows * N + cols
    for _ in range(0, PARTS):
        total += tl.load(plane, mask=inside, other=0.0)
        plane += stride_work
    if BIAS_RELU:
        total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    work = torch.empty((SHARES, M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), SHARES)](
        a, b, work, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), work.stride(0), PARTS=SHARES
    )
    finish_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 128),)](
        work, out, bias, M, N, work.stride(0), out.stride(0), BIAS_RELU=bias_relu, PARTS=SHARES, ROWS=16, COLS=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), with the bias in the second kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
