# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In matmul_kernel `total` has the dtype of c and each product is rounded to it before it is added, so fp16 and bf16 sums lose digits wherever K takes several blocks (and matmul_bias_relu rounds twice); it should be fp32, `tl.zeros(..., tl.float32)` and `tl.dot(x, y, total)`. (2) The bias is loaded at `lane_n`, the column within the tile, instead of `cols`: in matmul_bias_relu all columns from BLOCK_N on get the bias of the first BLOCK_N.
"""Persistent matmul: a fixed number of programs, each of which computes one tile after the other."""

import torch
import triton
import triton.language as tl

# No more programs than these are started; a program takes every PROGRAMS-th tile.
PROGRAMS = 264

SHAPES = {
    (128, 256, 64): (3, 8),
    (256, 128, 64): (3, 8),
    (128, 128, 64): (3, 8),
    (64, 128, 32): (4, 4),
    (64, 64, 32): (3, 4),
}
CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)
    for (m, n, k), (stages, warps) in SHAPES.items()
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
    height = tl.cdiv(M, BLOCK_M)
    width = tl.cdiv(N, BLOCK_N)
    band = tile // (GROUP_M * width)
    inside = tile - band * GROUP_M * width
    band_height = min(height - band * GROUP_M, GROUP_M)
    row = band * GROUP_M + inside % band_height
    column = inside // band_height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns the tiles pid, pid + programs, pid + 2 * programs ..."""
    lane_m = tl.arange(0, BLOCK_M)
    lane_n = tl.arange(0, BLOCK_N)
    lane_k = tl.arange(0, BLOCK_K).to(tl.int64)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)

    tile = tl.program_id(axis=0)
    while tile < tiles:
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rows = (m + lane_m).to(tl.int64)
        cols = (n + lane_n).to(tl.int64)

        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
        for k in range(0, K, BLOCK_K):
            ks = k + lane_k
            x_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
            y_at = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
            x = tl.load(x_at, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
            y = tl.load(y_at, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
            total += tl.dot(x, y, input_precision="ieee").to(c_ptr.dtype.element_ty)

        value = total.to(tl.float32)
        if BIAS_RELU:
            bias = tl.load(bias_ptr + lane_n, mask=lane_n < N, other=0.0).to(tl.float32)
            value = tl.maximum(value + bias[None, :], 0.0)
        z_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
        tl.store(z_at, value.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))

        tile += tl.num_programs(axis=0)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.size(1)
    dest = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(tiles, PROGRAMS),)

    matmul_kernel[grid](a, b, dest, bias, M, N, K, *a.stride(), *b.stride(), *dest.stride(), BIAS_RELU=bias_relu)
    return dest


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
