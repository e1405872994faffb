# labs/lab4_production_slice/layer_norm_linear.py | right | The scaled weight is centred: the mean of gamma * weight over a row is taken off before it is rounded (a constant changes nothing, since x - mean sums to 0), and total is the sum of what was rounded. The product has persistent programs that walk over the tiles, with a helper for the loop along K.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

PROGRAMS = 264  # of the product, at most: two for each SM of an H200, which walk over the tiles


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 32, stages=4, warps=8),
    tile(64, 64, 32, stages=2, warps=4),  # for fp32
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
    """Row j of scaled is gamma * weight[j] minus the mean of that row, rounded to its dtype.

    The differences x - mean of a row sum to 0, so a constant that is taken off the scaled weight changes
    nothing: sum((x - mean) * s) = sum((x - mean) * (s - c)). What is left of the sum of the row after
    rounding is total[j]. shift[j] is the sum of beta * weight[j], plus bias[j]; both are fp32.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    sum_s = tl.full([], 0.0, tl.float32)
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        sum_s += tl.sum(w * load(gamma_ptr, cols, N_COLS), axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    centre = sum_s / N_COLS
    total = tl.full([], 0.0, tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s = load(weight_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        s = tl.where(cols < N_COLS, s - centre, 0.0).to(scaled_ptr.dtype.element_ty).to(tl.float32)
        store(scaled_row, cols, N_COLS, s)
        total += tl.sum(s, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def product_of(x_tile, s_tile, row_exists, col_exists, K, BLOCK_K: tl.constexpr, zeros):
    """Return the product of a strip of rows of x and a strip of rows of scaled, on top of zeros."""
    ks = tl.arange(0, BLOCK_K)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_tile + (k + ks)[None, :], mask=row_exists & ((k + ks)[None, :] < K), other=0.0)
        s = tl.load(s_tile + (k + ks)[:, None], mask=col_exists & ((k + ks)[:, None] < K), other=0.0)
        zeros = tl.dot(x, s, zeros, input_precision="ieee")
    return zeros


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes every so many tiles of y.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    across = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * across
    for number in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        rows = number // across * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        cols = number % across * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
        zeros = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        product = product_of(
            x_ptr + rows * stride_x, scaled_ptr + cols * K, rows < M, cols < N, K, BLOCK_K, zeros
        )
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
        shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
        y = rstd * (product - mean * total) + shift
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


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
    block = min(block_of(K), 4096)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block
    )

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)

    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
