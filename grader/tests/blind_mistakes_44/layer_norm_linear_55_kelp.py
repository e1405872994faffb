# labs/lab4_production_slice/layer_norm_linear.py | corner | In `place`, `return first + inside % height, inside // GROUP_M` divides by GROUP_M where the last group has fewer rows of tiles; it should be `inside // height`. Where the number of tiles along the rows is no multiple of 8 and there is more than one tile along the outputs, tiles of the last group are computed several times and others are never written (as fp32 37 rows to 70 outputs, 130 to 136 in fp16 with tiles of 128 x 128). One column of tiles, or a multiple of 8 rows of tiles, is right.
"""LayerNorm and the Linear layer behind it, with one matrix product in grouped tile order."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on

GROUP_M = tl.constexpr(8)  # rows of tiles that are walked together: they share what L2 holds of scaled
WIDTH = 1024  # columns of a tile of scale_kernel
HEIGHT = 4  # rows of the weight in a program of scale_kernel


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=2, warps=4),
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
    n_cols,
    stride_weight,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """scaled = gamma * weight, rounded; total sums its rows, and shift is beta @ weight.T + bias.

    A program has ROWS rows. Its sums are tiles, which are reduced once.
    """
    outputs = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    rows = outputs[:, None].to(tl.int64)
    totals = tl.zeros((ROWS, COLS), dtype=tl.float32)
    shifts = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        inside = (rows < n_outs) & (cols < n_cols)
        weight = tl.load(weight_ptr + rows * stride_weight + cols, mask=inside, other=0.0).to(tl.float32)
        gamma = tl.load(gamma_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        scaled = (gamma * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + rows * n_cols + cols, scaled, mask=inside)
        totals += scaled.to(tl.float32)
        shifts += beta * weight
    exists = outputs < n_outs
    bias = tl.load(bias_ptr + outputs, mask=exists, other=0.0).to(tl.float32)
    tl.store(total_ptr + outputs, tl.sum(totals, axis=1), mask=exists)
    tl.store(shift_ptr + outputs, tl.sum(shifts, axis=1) + bias, mask=exists)


@triton.jit
def place(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return row and column of the tile with this number: groups of GROUP_M rows, each column by column."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    first = number // (GROUP_M * across) * GROUP_M
    inside = number % (GROUP_M * across)
    height = min(down - first, GROUP_M)
    return first + inside % height, inside // GROUP_M


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program has one BLOCK_M x BLOCK_N tile.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    tile_m, tile_n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        right = k + tl.arange(0, BLOCK_K)[None, :]
        below = k + tl.arange(0, BLOCK_K)[:, None]
        x = tl.load(x_ptr + rows * stride_x + right, mask=(rows < M) & (right < K), other=0.0)
        s = tl.load(scaled_ptr + cols * K + below, mask=(cols < N) & (below < K), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = (product - mean * total) * rstd + shift
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
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(triton.cdiv(N, HEIGHT),)](
        weight, gamma, beta, bias, scaled, total, shift, N, K, weight.stride(0), ROWS=HEIGHT, COLS=WIDTH
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
