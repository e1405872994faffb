# labs/lab4_production_slice/layer_norm_linear.py | right | Unusual: one launch of n_rows + n_outs programs does the statistics of x and the scaling of the weight, and the product has a one-dimensional grid whose tiles are walked in groups of 8 rows of tiles, as in lab 3.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

GROUP = 8  # rows of tiles that are walked column by column


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": GROUP}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 256, 64, stages=4, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=4, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def statistics(x_row, mean_at, rstd_at, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of one row of x."""
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(mean_at, mean)
    tl.store(rstd_at, rstd)


@triton.jit
def scale(
    w_row, gamma_ptr, beta_ptr, bias_at, s_row, total_at, shift_at, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Store one row of scaled, and its two sums."""
    total = 0.0
    shift = tl.load(bias_at).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(s_row.dtype.element_ty)
        store(s_row, cols, N_COLS, s)
        total += tl.sum(s.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_at, total)
    tl.store(shift_at, shift)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    n_rows,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Programs 0 to n_rows - 1 have the rows of x, those behind them the rows of the weight."""
    i = tl.program_id(axis=0).to(tl.int64)
    if i < n_rows:
        statistics(x_ptr + i * stride_x, mean_ptr + i, rstd_ptr + i, eps, N_COLS, BLOCK)
    else:
        j = i - n_rows
        scale(
            weight_ptr + j * stride_weight,
            gamma_ptr,
            beta_ptr,
            bias_ptr + j,
            scaled_ptr + j * N_COLS,
            total_ptr + j,
            shift_ptr + j,
            N_COLS,
            BLOCK,
        )


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
    GROUP_M: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile."""
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = pid // (GROUP_M * tiles_n) * GROUP_M
    within = pid % (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - first, GROUP_M)
    rows = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = within // height * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)

    x_at = x_ptr + rows * stride_x + tl.arange(0, BLOCK_K)[None, :]
    s_at = scaled_ptr + cols * K + tl.arange(0, BLOCK_K)[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        x = tl.load(x_at + k, mask=(rows < M) & (tl.arange(0, BLOCK_K)[None, :] < left), other=0.0)
        s = tl.load(s_at + k, mask=(cols < N) & (tl.arange(0, BLOCK_K)[:, None] < left), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")

    # The norm, in place: first what depends on rows and columns, then the rows, then the columns.
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    product -= mean * total
    product *= tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    product += tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    tl.store(y_ptr + rows * stride_y + cols, product.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


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
    on(prepare_kernel, x)[(M + N,)](
        x,
        weight,
        gamma,
        beta,
        bias,
        mean,
        rstd,
        scaled,
        total,
        shift,
        M,
        x.stride(0),
        weight.stride(0),
        eps,
        N_COLS=K,
        BLOCK=block_of(K),
    )
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[tiles](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
