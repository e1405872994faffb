# labs/lab4_production_slice/layer_norm_linear.py | corner | scale_kernel adds up the scaled row before it is rounded (`total += tl.sum(s)`, s in fp32, rounded only by the store), but the product takes the rounded row; must be the sum of s.to(dtype).to(tl.float32). Shows in fp16 and bf16 where |mean| is much larger than the deviation of a row; fp32 is right.
"""LayerNorm + Linear, with the order of tiles of lab 3."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

GROUP = tl.constexpr(8)  # tile rows of a group


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=stages, num_warps=warps
    )


TILES = [
    tile(256, 128, 64, stages=3, warps=8),
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, stats_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of row i to stats[0, i], rstd to stats[1, i]."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    sums_ptr,
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The scaled row j, its total to sums[0, j], and the shift to sums[1, j]."""
    row = tl.program_id(axis=0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + row * stride_weight, cols, N_COLS)
        s = w * load(gamma_ptr, cols, N_COLS)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, s)
        total += s
        shift += w * load(beta_ptr, cols, N_COLS)
    tl.store(sums_ptr + row, tl.sum(total, axis=0))
    tl.store(sums_ptr + n_outs + row, tl.sum(shift, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    stats_ptr,
    sums_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_x,
    stride_y,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of y, in groups of GROUP tile rows."""
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP * tiles_n
    first = pid // per_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + pid % per_group % height
    tile_n = pid % per_group // height

    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    m_ok, n_ok = m < M, n < N

    x_ptrs = x_ptr + m[:, None] * stride_x + k[None, :]
    s_ptrs = scaled_ptr + n[None, :] * K + k[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        k_ok = k < K - step * BLOCK_K
        a = tl.load(x_ptrs, mask=m_ok[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(s_ptrs, mask=k_ok[:, None] & n_ok[None, :], other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
        x_ptrs += BLOCK_K
        s_ptrs += BLOCK_K

    mean = tl.load(stats_ptr + m, mask=m_ok, other=0.0)
    rstd = tl.load(stats_ptr + M + m, mask=m_ok, other=0.0)
    total = tl.load(sums_ptr + n, mask=n_ok, other=0.0)
    shift = tl.load(sums_ptr + N + n, mask=n_ok, other=0.0)
    y = (product - mean[:, None] * total[None, :]) * rstd[:, None] + shift[None, :]
    y_ptrs = y_ptr + m[:, None] * stride_y + n[None, :]
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=m_ok[:, None] & n_ok[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.size(0)
    out = x.new_empty((M, N)) if out is None else out
    scaled = x.new_empty((N, K))
    stats = x.new_empty((2, M), dtype=torch.float32)
    sums = x.new_empty((2, N), dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, stats, M, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, sums, N, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    on(linear_kernel, x)[grid](x, scaled, stats, sums, out, M, N, K, x.stride(0), out.stride(0))
    return out
