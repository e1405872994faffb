# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_kernel`, `shift += beta * row` comes after `row = rounded.to(tl.float32)`, so that beta meets gamma * weight; it should be beta times the weight as it was loaded. y is off by the same number in all rows of a column, in all cases where gamma is not 1.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on

HIGH, WIDE = 8, 512  # the tile of the weight that a program of scale_kernel has in registers


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 128, 64, stages=4, warps=4),
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
    HIGH: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Rows of scaled are gamma * weight[j], rounded; program i has HIGH of them, WIDE columns at a time.

    total[j] is the sum of such a row, and shift[j] is what beta and bias add to output j; both are fp32.
    """
    outs = tl.program_id(axis=0) * HIGH + tl.arange(0, HIGH)
    exists = outs < n_outs
    at = outs.to(tl.int64)[:, None]
    total = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    shift = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    for start in range(0, N_COLS, WIDE):
        cols = start + tl.arange(0, WIDE)
        inside = exists[:, None] & (cols < N_COLS)[None, :]
        gamma = tl.load(gamma_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)[None, :]
        beta = tl.load(beta_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)[None, :]
        row = tl.load(weight_ptr + at * stride_weight + cols[None, :], mask=inside, other=0.0)
        rounded = (gamma * row.to(tl.float32)).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + at * N_COLS + cols[None, :], rounded, mask=inside)
        row = rounded.to(tl.float32)
        total += row
        shift += beta * row
    bias = tl.load(bias_ptr + outs, mask=exists, other=0.0).to(tl.float32)
    tl.store(total_ptr + outs, tl.sum(total, axis=1), mask=exists)
    tl.store(shift_ptr + outs, tl.sum(shift, axis=1) + bias, mask=exists)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)
    along = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows.to(tl.int64)[:, None] * stride_x + along[None, :]
    s_tile = scaled_ptr + cols.to(tl.int64)[None, :] * K + along[:, None]
    in_m, in_n = rows < M, cols < N
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        x = tl.load(x_tile, mask=in_m[:, None] & (along < left)[None, :], other=0.0)
        s = tl.load(s_tile, mask=in_n[None, :] & (along < left)[:, None], other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    mean = tl.load(mean_ptr + rows, mask=in_m, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=in_m, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=in_n, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=in_n, other=0.0)[None, :]
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
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(triton.cdiv(N, HIGH),)](
        weight, gamma, beta, bias, scaled, total, shift, N, weight.stride(0), N_COLS=K, HIGH=HIGH, WIDE=WIDE
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
