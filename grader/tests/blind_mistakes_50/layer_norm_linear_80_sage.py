# labs/lab4_production_slice/layer_norm_linear.py | right | The product runs in at most 132 persistent programs that go from tile to tile and load scaled by rows, transposed by tl.trans; mean and rstd lie side by side in an (M, 2) tensor; the weight is scaled in tiles of 4 rows whose sums stay tiles until the end.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on

PROGRAMS = 132  # of linear_kernel at most, one for each SM of an H200; each goes on from tile to tile
OUTS = 4  # rows of the weight that a program of scale_kernel has


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(256, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, stats_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32, side by side; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)


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
    OUTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """scaled = gamma * weight in the dtype of scaled, with the sums of its rows, and shift = weight @ beta + bias.

    A program has OUTS rows and takes BLOCK columns of each at a time. Both sums are tiles until the end.
    """
    outs = tl.program_id(axis=0).to(tl.int64) * OUTS + tl.arange(0, OUTS)
    exists = outs < n_outs
    totals = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    shifts = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < n_cols)[None, :]
        gamma = tl.load(gamma_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + outs[:, None] * stride_weight + cols[None, :], mask=inside, other=0.0)
        w = w.to(tl.float32)
        scaled = (gamma[None, :] * w).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + outs[:, None] * n_cols + cols[None, :], scaled, mask=inside)
        totals += scaled.to(tl.float32)
        shifts += beta[None, :] * w
    bias = tl.load(bias_ptr + outs, mask=exists, other=0.0).to(tl.float32)
    tl.store(total_ptr + outs, tl.sum(totals, axis=1), mask=exists)
    tl.store(shift_ptr + outs, tl.sum(shifts, axis=1) + bias, mask=exists)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program p computes tiles p, p + programs, ...

    Tiles are counted along a row of tiles first. M of x and y, N of scaled and K are as in x @ scaled.T.
    """
    across = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * across
    ks = tl.arange(0, BLOCK_K)
    for number in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        rows = ((number // across) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = ((number % across) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        x_rows = x_ptr + rows[:, None] * stride_x
        s_rows = scaled_ptr + cols[:, None] * K
        product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            at = (k + ks)[None, :]
            x = tl.load(x_rows + at, mask=(rows[:, None] < M) & (at < K), other=0.0)
            s = tl.load(s_rows + at, mask=(cols[:, None] < N) & (at < K), other=0.0)
            product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
        mean = tl.load(stats_ptr + 2 * rows, mask=rows < M, other=0.0)
        rstd = tl.load(stats_ptr + 2 * rows + 1, mask=rows < M, other=0.0)
        total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
        shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
        y = rstd[:, None] * (product - mean[:, None] * total[None, :]) + shift[None, :]
        inside = (rows[:, None] < M) & (cols[None, :] < N)
        y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
        tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    stats = torch.empty((M, 2), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, stats, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(triton.cdiv(N, OUTS),)](
        weight, gamma, beta, bias, scaled, total, shift, N, K, weight.stride(0),
        OUTS=OUTS, BLOCK=min(block_of(K), 1024),
    )  # fmt: skip
    on(linear_kernel, x)[
        lambda meta: (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)
    ](
        x, scaled, stats, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
