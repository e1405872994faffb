# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `rectified`, `tl.where(sums > bias, sums + bias, 0.0)` compares with the wrong sign: it should be `sums > -bias`. Elements with |sum| < |bias| come out wrong: 0 in place of sum + bias where the bias is positive, negative values where it is negative. Shows in every case of `matmul_bias_relu`; `matmul` is right.
"""Autotuned matrix product, tile by tile, and relu(a @ b + bias) from the same kernel."""

import torch
import triton
import triton.language as tl

# Rows of tiles that are walked together.
BAND = 8

SHAPES = (
    # BLOCK_M, BLOCK_N, BLOCK_K, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (64, 128, 64, 4, 4),
    (128, 64, 64, 4, 4),
    (64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "BAND_M": BAND}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result can fill; for fp32 the smallest alone, as it is unrolled into single products."""
    if named_args["x_ptr"].dtype == torch.float32:
        return configs[-1:]
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= named_args["M"] and config.kwargs["BLOCK_N"] <= named_args["N"]:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def load_tile(base, i, j, stride_i, stride_j, end_i, end_j):
    """base[i, j], and 0 where i or j is at its end or beyond."""
    inside = (i[:, None] < end_i) & (j[None, :] < end_j)
    return tl.load(base + i[:, None] * stride_i + j[None, :] * stride_j, mask=inside, other=0.0)


@triton.jit
def rectified(sums, bias):
    """relu(sums + bias) without a second clamp: the sum where it is positive, else 0."""
    return tl.where(sums > bias, sums + bias, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, M, N, K, sxm, sxk, swk, swn, sym, syn, FUSED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BAND_M: tl.constexpr,
):  # fmt: skip
    """y = x @ w, one BLOCK_M x BLOCK_N tile for each program."""
    pid = tl.program_id(axis=0)
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    # swizzle2d walks bands of BAND_M rows of tiles column by column, and shortens the last band.
    tile_m, tile_n = tl.swizzle2d(pid // across, pid % across, down, across, BAND_M)
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    lane = tl.arange(0, BLOCK_K)

    x_base = x_ptr
    w_base = w_ptr
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = load_tile(x_base, rows, lane, sxm, sxk, M, K - k)
        w = load_tile(w_base, lane, cols, swk, swn, K - k, N)
        sums = tl.dot(x, w, sums, input_precision="ieee")
        x_base += BLOCK_K * sxk
        w_base += BLOCK_K * swk

    if FUSED:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = rectified(sums, bias[None, :])
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(y_ptr + rows[:, None] * sym + cols[None, :] * syn, sums.to(y_ptr.dtype.element_ty), mask=inside)


def _launch(x, w, bias, y, fused):
    M, K = x.shape
    _, N = w.shape
    if y is None:
        y = x.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](
        x, w, y, bias, M, N, K,
        x.stride(0), x.stride(1), w.stride(0), w.stride(1), y.stride(0), y.stride(1), FUSED=fused,
    )  # fmt: skip
    return y


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; summed in fp32 and rounded once."""
    return _launch(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, fused=True)
