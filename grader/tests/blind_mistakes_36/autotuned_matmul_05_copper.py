# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) `place` takes every group to be GROUP_M tile rows high (`inside % GROUP_M`, `inside // GROUP_M`): where the tile rows are no multiple of GROUP_M and there are at least 2 tile columns, programs of the last group point at tile rows that do not exist, and tiles of c stay unwritten, in both functions; the height of the last group should be min(tile rows - first, GROUP_M). (2) `finish` clamps before it adds the bias, `tl.maximum(acc, 0.0) + bias`: wrong in every case of matmul_bias_relu where acc or acc + bias is negative; it should be tl.maximum(acc + bias, 0.0).
"""Tiled matrix product with a fused epilogue."""

import torch
import triton
import triton.language as tl


def _tile(bm, bn, bk, stages, warps, group=8):
    meta = dict(BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=group)
    return triton.Config(meta, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 256, 64, 3, 8),
    _tile(256, 128, 64, 3, 8),
    _tile(128, 128, 32, 4, 8),
    _tile(64, 128, 32, 4, 4),
    _tile(64, 64, 32, 4, 4),
    _tile(32, 32, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result fills; for fp32 at most 64 wide, because those products do not use tensor cores."""
    smaller_side = min(named_args["M"], named_args["N"])
    cap = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    return [
        c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(cap, smaller_side)
    ] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    per_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // per_group
    inside = tile % per_group
    tile_m = group * GROUP_M + inside % GROUP_M
    tile_n = inside // GROUP_M
    return tile_m * BLOCK_M, tile_n * BLOCK_N


@triton.jit
def finish(acc, bias_ptr, cols, N):
    """Bias and ReLU on the fp32 sums of a tile."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc, 0.0) + bias[None, :]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    inner = tl.arange(0, BLOCK_K)

    a_ptrs = a_ptr + (rows[:, None] * stride_am + inner[None, :] * stride_ak)
    b_ptrs = b_ptr + (inner[:, None] * stride_bk + cols[None, :] * stride_bn)
    row_mask = rows[:, None] < M
    col_mask = cols[None, :] < N

    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        todo = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=row_mask & (inner[None, :] < todo), other=0.0)
        b = tl.load(b_ptrs, mask=col_mask & (inner[:, None] < todo), other=0.0)
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        acc = finish(acc, bias_ptr, cols, N)

    c_ptrs = c_ptr + (rows[:, None] * stride_cm + cols[None, :] * stride_cn)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = a.new_empty((M, N))
    sizes = (M, N, K)
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, *sizes, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
