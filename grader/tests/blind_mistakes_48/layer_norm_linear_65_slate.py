# labs/lab4_production_slice/layer_norm_linear.py | corner | In `scale_kernel` the line `totals += scaled` adds gamma * weight before it is rounded to the dtype that is stored. It should add `scaled.to(scaled_ptr.dtype.element_ty).to(tl.float32)`, the numbers that the product takes. Shows in fp16 and bf16 for rows whose mean is large against their deviation; fp32 and rows near 0 are right.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on

OUTS, COLS = tl.constexpr(4), tl.constexpr(512)  # the tile of the weight that a program scales at a time

TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 64, 32, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, stats_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x in the two rows of stats, (2, n_rows) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)


@triton.jit
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, n_outs, n_cols, stride_weight
):
    """Rows of gamma * weight, in the dtype of scaled, with their sums `total`, and sums of beta * weight.

    Program i has OUTS rows. Two tiles take the terms, element by element, and are reduced once, at the end.
    """
    outs = tl.program_id(axis=0).to(tl.int64) * OUTS + tl.arange(0, OUTS)
    weight_rows = weight_ptr + outs[:, None] * stride_weight
    scaled_rows = scaled_ptr + outs[:, None] * n_cols
    totals = tl.zeros((OUTS, COLS), dtype=tl.float32)
    shifts = tl.zeros((OUTS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        gamma = tl.load(gamma_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        inside = (outs < n_outs)[:, None] & (cols < n_cols)[None, :]
        weight = tl.load(weight_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        scaled = weight * gamma[None, :]
        tl.store(scaled_rows + cols[None, :], scaled.to(scaled_ptr.dtype.element_ty), mask=inside)
        totals += scaled
        shifts += weight * beta[None, :]
    bias = tl.load(bias_ptr + outs, mask=outs < n_outs, other=0.0).to(tl.float32)
    tl.store(total_ptr + outs, tl.sum(totals, axis=1), mask=outs < n_outs)
    tl.store(shift_ptr + outs, tl.sum(shifts, axis=1) + bias, mask=outs < n_outs)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    stats_ptr,
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; programs go along a row of tiles of y.

    Rows and columns past the end start again at 0, so that loads need a mask along K only.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(axis=0)
    rows = (tile // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tile % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + (rows % M)[:, None] * stride_x + ks[None, :]
    scaled_tile = scaled_ptr + (cols % N)[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        x = tl.load(x_tile, mask=ks[None, :] < left, other=0.0)
        scaled = tl.load(scaled_tile, mask=ks[:, None] < left, other=0.0)
        product = tl.dot(x, scaled, acc=product, input_precision="ieee")
        x_tile += BLOCK_K
        scaled_tile += BLOCK_K
    mean = tl.load(stats_ptr + rows % M)
    rstd = tl.load(stats_ptr + M + rows % M)
    total = tl.load(total_ptr + cols % N)
    shift = tl.load(shift_ptr + cols % N)
    y = rstd[:, None] * (product - mean[:, None] * total[None, :]) + shift[None, :]
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    tl.store(y_ptr + rows[:, None] * stride_y + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    stats = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, stats, M, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(triton.cdiv(N, OUTS),)](
        weight, gamma, beta, bias, scaled, total, shift, N, K, weight.stride(0), num_warps=4
    )

    def tiles(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    on(linear_kernel, x)[tiles](x, scaled, stats, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
