# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_kernel` the line `shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)` uses w, which is already weight times gamma. beta must be multiplied by the weight row alone: gamma is in the shift, where it does not belong. Wrong in all cases in which gamma is not 1 and beta not 0.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

GROUP = tl.constexpr(8)  # rows of tiles that are walked column by column


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 128, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row j of scaled is gamma * weight[j], rounded to its dtype, with its two sums; program j has row j."""
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        rounded = w.to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_row + cols, rounded, mask=cols < N_COLS)
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    shift += tl.load(bias_ptr + row).to(tl.float32)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def place(number, tiles_m, tiles_n):
    """Row and column, in tiles, of a tile of the result from its number."""
    together = GROUP * tiles_n
    first = number // together * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = number % together
    return first + within % height, within // height


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    mean_ptr,
    rstd_ptr,
    total_ptr,
    shift_ptr,
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile."""
    tile_m, tile_n = place(tl.program_id(axis=0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N))
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    has_row = (rows < M)[:, None]
    has_col = (cols < N)[None, :]
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows[:, None] * stride_x + ks[None, :]
    scaled_tile = scaled_ptr + cols[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_tile, mask=has_row & (ks[None, :] < K - k), other=0.0)
        s = tl.load(scaled_tile, mask=has_col & (ks[:, None] < K - k), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
        x_tile += BLOCK_K
        scaled_tile += BLOCK_K
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=has_row & has_col)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block
    )
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
