# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_kernel`, `weight = scaled.to(tl.float32)` stands before `shift += beta * weight`, so shift is the sum of beta * gamma * W instead of beta * W (should be `total += scaled.to(tl.float32)` and `shift += beta * weight` with the raw weight). The result is wrong in all cases in which gamma is not 1 and beta is not 0.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

OUTS = tl.constexpr(4)  # rows of the weight that a program of scale_kernel has
BAND = tl.constexpr(8)  # rows of tiles that are computed together, so that tiles of scaled stay in L2


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
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


@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Scale OUTS rows of the weight by gamma, and add up what the norm leaves behind for each of them.

    scaled is (n_outs, N_COLS), contiguous. total and shift, n_outs numbers each, are fp32.
    """
    outs = tl.program_id(axis=0) * OUTS + tl.arange(0, OUTS)
    there = (outs < n_outs)[:, None]
    weight_rows = weight_ptr + outs.to(tl.int64)[:, None] * stride_weight
    scaled_rows = scaled_ptr + outs.to(tl.int64)[:, None] * N_COLS
    total = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    shift = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = there & (cols < N_COLS)[None, :]
        gamma = load(gamma_ptr, cols, N_COLS)[None, :]
        beta = load(beta_ptr, cols, N_COLS)[None, :]
        weight = tl.load(weight_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        scaled = (gamma * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_rows + cols[None, :], scaled, mask=inside)
        weight = scaled.to(tl.float32)  # what the product is going to see
        total += weight
        shift += beta * weight
    bias = load(bias_ptr, outs, n_outs)
    store(total_ptr, outs, n_outs, tl.sum(total, axis=1))
    store(shift_ptr, outs, n_outs, tl.sum(shift, axis=1) + bias)


@triton.jit
def place(number, n_down, n_across):
    """Return row and column of a tile: down a band of BAND rows of tiles, then to the next column."""
    of_band = BAND * n_across
    first = number // of_band * BAND
    height = tl.minimum(n_down - first, BAND)
    within = number % of_band
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    down, across = place(tl.program_id(axis=0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N))
    rows = (down * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (across * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_there, col_there = rows < M, cols < N
    x_rows = x_ptr + rows[:, None] * stride_x
    scaled_cols = scaled_ptr + cols[None, :] * K
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + ks[None, :], mask=row_there[:, None] & (ks < K)[None, :], other=0.0)
        s = tl.load(scaled_cols + ks[:, None], mask=(ks < K)[:, None] & col_there[None, :], other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
    mean = load(mean_ptr, rows, M)[:, None]
    rstd = load(rstd_ptr, rows, M)[:, None]
    total = load(total_ptr, cols, N)[None, :]
    shift = load(shift_ptr, cols, N)[None, :]
    y = rstd * (product - mean * total) + shift
    inside = row_there[:, None] & col_there[None, :]
    tl.store(y_ptr + rows[:, None] * stride_y + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    width = min(triton.next_power_of_2(K), 1024)
    on(scale_kernel, x)[(triton.cdiv(N, OUTS),)](
        weight, gamma, beta, bias, scaled, total, shift, N, weight.stride(0), N_COLS=K, BLOCK=width
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
