# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel (matmul and matmul_bias_relu): the step for the rest of K, `acc = tl.dot(a, b, acc)` under `if rest > 0:`, lacks `input_precision="ieee"`, so the rest of K is multiplied as TF32. Shows in fp32 only, where K is no multiple of 32 (the one BLOCK_K that fp32 uses), e.g. M, N, K = 129, 127, 200 with whole numbers, or K = 257.
"""Tiled matrix product: the loop over whole blocks of K has no mask along K, one more step does the rest."""

import torch
import triton
import triton.language as tl

TILES = {
    # (BLOCK_M, BLOCK_N, BLOCK_K): (stages, warps)
    (128, 256, 64): (3, 8),
    (256, 128, 64): (3, 8),
    (128, 128, 64): (3, 8),
    (128, 128, 32): (4, 8),
    (64, 128, 64): (4, 4),
    (64, 64, 64): (3, 4),
    (64, 64, 32): (4, 4),
}
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for (bm, bn, bk), (stages, warps) in TILES.items()
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; fp32 gets the last config, its products are unrolled."""
    if named_args["bias_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c, GROUP_M rows of tiles at a time."""
    wide = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * wide) * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * wide)
    row, col = first + within % height, within // height
    return row * BLOCK_M, col * BLOCK_N


@triton.jit
def ptrs_at(ptr, i, j, stride_i, stride_j):
    """A block of addresses: i along the first axis, j along the second."""
    return ptr + i[:, None] * stride_i + j[None, :] * stride_j


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = ptrs_at(a_ptr, rows, ks, stride_am, stride_ak)
    b_ptrs = ptrs_at(b_ptr, ks, cols, stride_bk, stride_bn)
    row_ok = rows[:, None] < M
    col_ok = cols[None, :] < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K
    for _ in range(whole):
        a = tl.load(a_ptrs, mask=row_ok, other=0.0)
        b = tl.load(b_ptrs, mask=col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    rest = K - whole * BLOCK_K
    if rest > 0:
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < rest), other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & (ks[:, None] < rest), other=0.0)
        acc = tl.dot(a, b, acc)

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = ptrs_at(c_ptr, rows, cols, stride_cm, stride_cn)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
