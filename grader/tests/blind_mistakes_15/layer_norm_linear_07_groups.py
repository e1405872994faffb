# labs/lab4_production_slice/layer_norm_linear.py | right | right
"""LayerNorm and the Linear layer behind it: several rows of the weight a program, tiles in groups."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 64, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    small = named_args["x_ptr"].dtype == torch.float32
    return configs[-1:] if small else configs


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
    """Scale ROWS rows of the weight, COLS columns at a time; two tiles of sums are reduced at the end."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    shift = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)
        gamma = tl.load(gamma_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        inside = (rows[:, None] < n_outs) & (cols[None, :] < n_cols)
        at = weight_ptr + rows[:, None] * stride_weight + cols[None, :]
        weight = tl.load(at, mask=inside, other=0.0).to(tl.float32)
        scaled = (gamma[None, :] * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + rows[:, None] * n_cols + cols[None, :], scaled, mask=inside)
        total += scaled.to(tl.float32)
        shift += beta[None, :] * weight
    bias = tl.load(bias_ptr + rows, mask=rows < n_outs, other=0.0).to(tl.float32)
    tl.store(total_ptr + rows, tl.sum(total, axis=1), mask=rows < n_outs)
    tl.store(shift_ptr + rows, tl.sum(shift, axis=1) + bias, mask=rows < n_outs)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; GROUP_M rows of tiles are walked column by column."""
    pid = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = pid // (tiles_n * GROUP_M) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = pid % (tiles_n * GROUP_M)
    m = (first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    n = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    has_m, has_n = m < M, n < N

    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        has_k = k < K
        x = tl.load(x_ptr + m[:, None] * stride_x + k[None, :], mask=has_m[:, None] & has_k[None, :], other=0.0)
        s = tl.load(scaled_ptr + n[:, None] * K + k[None, :], mask=has_n[:, None] & has_k[None, :], other=0.0)
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")

    mean = tl.load(mean_ptr + m, mask=has_m, other=0.0)
    rstd = tl.load(rstd_ptr + m, mask=has_m, other=0.0)
    total = tl.load(total_ptr + n, mask=has_n, other=0.0)
    shift = tl.load(shift_ptr + n, mask=has_n, other=0.0)
    y = rstd[:, None] * (product - mean[:, None] * total[None, :]) + shift[None, :]
    at = y_ptr + m[:, None] * stride_y + n[None, :]
    tl.store(at, y.to(y_ptr.dtype.element_ty), mask=has_m[:, None] & has_n[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(triton.cdiv(N, 8),)](
        weight, gamma, beta, bias, scaled, total, shift, N, K, weight.stride(0), ROWS=8, COLS=256
    )
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[tiles](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
