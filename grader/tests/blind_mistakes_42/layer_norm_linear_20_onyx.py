# labs/lab4_production_slice/layer_norm_linear.py | right | One launch does both the statistics of x and the scaled weight (a branch on the program number); the product has a grid of one axis with bands of tiles, rows modulo M and columns modulo N, no masks in its loop, and a masked step behind it where K is no multiple of BLOCK_K.
"""LayerNorm and the Linear layer behind it in two launches: what is small first, then the product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

BAND = tl.constexpr(8)  # rows of tiles that are walked together, so that L2 serves the tiles of scaled


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    *[tile(128, 128, 64, stages=stages, warps=8) for stages in (3, 4)],
    tile(128, 64, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def measure(x_ptr, stats_ptr, row, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store the mean of a row of x, and behind all means 1 / sqrt(variance + eps)."""
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)


@triton.jit
def scale(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, ends_ptr, row, n_outs, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store gamma * weight[row], the sum of what was stored, and behind all such sums the shift."""
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + row * stride_weight, cols, N_COLS)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty).to(tl.float32)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, s)
        total += tl.sum(s, axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * w, axis=0)
    tl.store(ends_ptr + row, total)
    tl.store(ends_ptr + n_outs + row, shift)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr, stats_ptr, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, ends_ptr, n_rows, n_outs,
    stride_x, stride_weight, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first n_outs programs have a row of the weight each, the n_rows others a row of x."""
    job = tl.program_id(axis=0).to(tl.int64)
    if job < n_outs:
        scale(
            weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, ends_ptr, job, n_outs, stride_weight,
            N_COLS, BLOCK,
        )  # fmt: skip
    else:
        measure(x_ptr, stats_ptr, job - n_outs, n_rows, stride_x, eps, N_COLS, BLOCK)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, stats_ptr, ends_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile of y.

    Tiles are walked in bands of BAND rows of them, column by column. Lanes past M or N load rows that exist
    and store nothing, so only the last step along K has a mask, where K is no multiple of BLOCK_K.
    """
    number = tl.program_id(axis=0)
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = number // (BAND * across) * BAND
    height = tl.minimum(down - first, BAND)
    within = number % (BAND * across)
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + (rows % M).to(tl.int64)[:, None] * stride_x + ks[None, :]
    s_tile = scaled_ptr + (cols % N).to(tl.int64)[None, :] * K + ks[:, None]

    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K * BLOCK_K
    for start in range(0, whole, BLOCK_K):
        product = tl.dot(tl.load(x_tile + start), tl.load(s_tile + start), product, input_precision="ieee")
    if whole < K:
        x = tl.load(x_tile + whole, mask=(ks < K - whole)[None, :], other=0.0)
        s = tl.load(s_tile + whole, mask=(ks < K - whole)[:, None], other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")

    in_m, in_n = rows < M, cols < N
    mean = tl.load(stats_ptr + rows, mask=in_m, other=0.0)[:, None]
    rstd = tl.load(stats_ptr + M + rows, mask=in_m, other=0.0)[:, None]
    total = tl.load(ends_ptr + cols, mask=in_n, other=0.0)[None, :]
    shift = tl.load(ends_ptr + N + cols, mask=in_n, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_tile = y_ptr + rows.to(tl.int64)[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=in_m[:, None] & in_n[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    stats = torch.empty((2, M), device=x.device, dtype=torch.float32)
    ends = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x, stats, weight, gamma, beta, bias, scaled, ends, M, N, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[tiles](x, scaled, stats, ends, out, M, N, K, x.stride(0), out.stride(0))
    return out
