# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | (1) scale_kernel: `shift += tl.sum(beta * w) + bias` stands in the loop over blocks, so the bias is added once for each block of SLICE = 2048 columns; y is off by (blocks - 1) * bias where n_cols > 2048, right for shorter rows; the bias should be added once, behind or before the loop. (2) layer_norm_linear_forward: the grid of linear_kernel has its axes exchanged, (tiles of rows, tiles of columns), while the kernel takes columns from axis 0 and rows from axis 1; where the two counts of tiles differ, part of y is never written (with 64 x 64 tiles e.g. 70 x 40 or 37 x 70), right where they are equal; it should be (cdiv(N, BLOCK_N), cdiv(M, BLOCK_M)).
"""Linear(LayerNorm(x)) with one matrix product: the norm is repaired in the epilogue of the product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

SLICE = 2048  # columns of the weight that scale_kernel takes at a time: it keeps three rows in registers


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(256, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
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
    """Row j of scaled is gamma * weight[j], rounded to its dtype; program j has row j.

    total[j] is the sum of that row, and shift[j] the sum of beta * weight[j], plus bias[j]; both are fp32.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    bias = tl.load(bias_ptr + row).to(tl.float32)
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        gamma = load(gamma_ptr, cols, N_COLS)
        beta = load(beta_ptr, cols, N_COLS)
        s = (gamma * w).to(scaled_ptr.dtype.element_ty)
        store(scaled_row, cols, N_COLS, s)
        total += tl.sum(s.to(tl.float32), axis=0)  # of the rounded numbers, as the product has them
        shift += tl.sum(beta * w, axis=0) + bias
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    row_exists = rows < M
    col_exists = cols < N

    depth = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows * stride_x + depth[None, :]
    s_tile = scaled_ptr + cols * K + depth[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(x_tile, mask=row_exists & (depth[None, :] < left), other=0.0)
        b = tl.load(s_tile, mask=col_exists & (depth[:, None] < left), other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K

    mean = tl.load(mean_ptr + rows, mask=row_exists, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0)
    total = tl.load(total_ptr + cols, mask=col_exists, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=col_exists, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=row_exists & col_exists)


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
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=min(block_of(K), SLICE)
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
