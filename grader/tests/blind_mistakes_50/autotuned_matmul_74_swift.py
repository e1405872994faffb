# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `matmul_kernel`: `piece = tl.cdiv(K, SPLIT)` is no multiple of BLOCK_K and the masks are `ks < K - k`, so the last step of a piece also adds the begin of the next one; the piece should be rounded up to whole steps (`tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K`) or the mask end at the piece. Shows in both functions where K is split (K >= 192 and few tiles) and the piece is no multiple of 64, as K = 257, 200, 192; not for K = 4096. (2) `rectify`: `tl.where(sums > 0, sums + bias[None, :], 0.0)` tests the sum before the bias; it should be `sums + bias > 0`. Shows in all cases of `matmul_bias_relu`, where the bias changes the sign.
"""Matrix product with K split among programs where the result is small; a second kernel adds the pieces."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=4),
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
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def rectify(sums, bias_ptr, cols, N):
    """relu(sums + bias), one bias for each column, in fp32."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.where(sums > 0, sums + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (i, s) sums piece s of K for tile i; with one piece c is the result, else (SPLIT, M, N) in fp32."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    s = tl.program_id(axis=1)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    in_rows = rows[:, None] < M
    in_cols = cols[None, :] < N
    piece = tl.cdiv(K, SPLIT)
    start = s * piece
    ks = start + tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None].to(tl.int64) * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :].to(tl.int64) * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, piece, BLOCK_K):
        a = tl.load(a_ptrs, mask=in_rows & (ks[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - k) & in_cols, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        acc = rectify(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None].to(tl.int64) * stride_cm + cols[None, :].to(tl.int64) * stride_cn
    tl.store(c_ptrs + s * stride_cs, acc.to(c_ptr.dtype.element_ty), mask=in_rows & in_cols)


@triton.jit
def add_pieces_kernel(
    pieces_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """c = the sum of the SPLIT pieces, tile by tile, with the epilogue."""
    rows = tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for s in range(SPLIT):
        total += tl.load(pieces_ptr + (s * M + rows[:, None]) * N + cols[None, :], mask=inside, other=0.0)
    if BIAS_RELU:
        total = rectify(total, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None].to(tl.int64) * stride_cm + cols[None, :].to(tl.int64) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    split = max(1, min(8, 128 // (triton.cdiv(M, 64) * triton.cdiv(N, 64)), K // 96))
    c, strides = out, (0, out.stride(0), out.stride(1))
    if split > 1:
        c, strides = torch.empty((split, M, N), device=a.device, dtype=torch.float32), (M * N, N, 1)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), split)  # noqa: E731
    matmul_kernel[grid](
        a, b, c, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), *strides,
        BIAS_RELU=bias_relu and split == 1, SPLIT=split,
    )  # fmt: skip
    if split > 1:
        add_pieces_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 64))](
            c, out, bias, M, N, out.stride(0), out.stride(1),
            BIAS_RELU=bias_relu, SPLIT=split, BLOCK_M=16, BLOCK_N=64, num_warps=4,
        )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
