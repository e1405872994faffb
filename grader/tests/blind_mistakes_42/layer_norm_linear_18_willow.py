# labs/lab4_production_slice/layer_norm_linear.py | right | Nothing is wrong. Unusual: the product is computed as its transpose, scaled @ x.T with outputs along the rows of the tile, and turned by `tl.trans` before the store; the grid has one axis; mean and rstd, as well as total and shift, lie in one (2, n) tensor each; `scale_kernel` takes tiles of 4 rows of the weight.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on

OUTS = tl.constexpr(4)  # rows of the weight that a program of scale_kernel takes at a time
WIDTH = 1024  # columns of the tile of scale_kernel at most


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=2, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, of_rows_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x to column i of of_rows, (2, n_rows) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(of_rows_ptr + row, mean)
    tl.store(of_rows_ptr + n_rows + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    of_outs_ptr,
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row j of scaled is gamma * weight[j], rounded to its dtype; program k has rows k * OUTS and up to it.

    Column j of of_outs, (2, n_outs) fp32, is the sum of that row, and the sum of beta * weight[j], plus
    bias[j].
    """
    outs = tl.program_id(axis=0).to(tl.int64) * OUTS + tl.arange(0, OUTS)
    exists = outs < n_outs
    weight_rows = weight_ptr + outs[:, None] * stride_weight
    scaled_rows = scaled_ptr + outs[:, None] * N_COLS
    totals = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    shifts = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < N_COLS)[None, :]
        w = tl.load(weight_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        gamma = tl.load(gamma_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        s = (w * gamma[None, :]).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_rows + cols[None, :], s, mask=inside)
        totals += s.to(tl.float32)
        shifts += w * beta[None, :]
    bias = tl.load(bias_ptr + outs, mask=exists, other=0.0).to(tl.float32)
    tl.store(of_outs_ptr + outs, tl.sum(totals, axis=1), mask=exists)
    tl.store(of_outs_ptr + n_outs + outs, tl.sum(shifts, axis=1) + bias, mask=exists)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    of_rows_ptr,
    of_outs_ptr,
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
    """y.T = (scaled @ x.T - total * mean) * rstd + shift: the tile is turned as it is stored.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). Rows of the product are outputs, its columns are
    rows of x; program k has one BLOCK_N x BLOCK_M tile of it, and tiles of one row of x are neighbours.
    """
    across = tl.cdiv(N, BLOCK_N)
    number = tl.program_id(axis=0)
    outs = (number % across) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    rows = (number // across) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)

    product = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    s_tile = scaled_ptr + outs[:, None] * K + ks[None, :]
    x_tile = x_ptr + rows[None, :] * stride_x + ks[:, None]
    for start in range(0, K, BLOCK_K):
        left = ks < K - start
        s = tl.load(s_tile + start, mask=(outs[:, None] < N) & left[None, :], other=0.0)
        x = tl.load(x_tile + start, mask=left[:, None] & (rows[None, :] < M), other=0.0)
        product = tl.dot(s, x, product, input_precision="ieee")

    mean = tl.load(of_rows_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(of_rows_ptr + M + rows, mask=rows < M, other=0.0)
    total = tl.load(of_outs_ptr + outs, mask=outs < N, other=0.0)
    shift = tl.load(of_outs_ptr + N + outs, mask=outs < N, other=0.0)
    turned = (product - total[:, None] * mean[None, :]) * rstd[None, :] + shift[:, None]
    y = tl.trans(turned.to(y_ptr.dtype.element_ty))
    tl.store(
        y_ptr + rows[:, None] * stride_y + outs[None, :], y, mask=(rows[:, None] < M) & (outs[None, :] < N)
    )


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    of_rows = torch.empty((2, M), device=x.device, dtype=torch.float32)
    of_outs = torch.empty((2, N), device=x.device, dtype=torch.float32)

    statistics = on(statistics_kernel, x)[(M,)]
    statistics(x, of_rows, M, x.stride(0), eps, N_COLS=K, BLOCK=min(block_of(K), 4096))

    width = min(block_of(K), WIDTH)
    scale = on(scale_kernel, x)[(triton.cdiv(N, OUTS),)]
    scale(weight, gamma, beta, bias, scaled, of_outs, N, weight.stride(0), N_COLS=K, BLOCK=width)

    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    multiply = on(linear_kernel, x)[tiles]
    multiply(x, scaled, of_rows, of_outs, out, M, N, K, x.stride(0), out.stride(0))
    return out
