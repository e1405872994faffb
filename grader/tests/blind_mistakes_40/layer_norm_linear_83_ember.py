# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `fold_kernel`, `w` has been multiplied by gamma and rounded when `shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)` uses it: shift is the sum of beta * gamma * weight, and should be the sum of beta * weight, with the row of the weight as loaded. Wrong in all cases (gamma is not 1), by one number for each column of the result.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

FOLD_WIDTH = 4096  # columns of a block of fold_kernel, which holds four vectors of this width


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
def statistics_kernel(x_ptr, stats_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and 1 / sqrt(variance + eps) of row i of x, to row 0 and row 1 of stats, (2, n_rows) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def fold_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, n_outs, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fold the norm into row j of the weight: the scaled row, and what the epilogue needs for column j.

    sums is (2, n_outs) fp32: row 0 has the sum of the scaled row as the tensor cores see it, row 1 what beta
    and bias add to the result.
    """
    out = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + out * stride_weight
    scaled_row = scaled_ptr + out * N_COLS
    total = 0.0
    shift = tl.load(bias_ptr + out).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        w = w.to(scaled_ptr.dtype.element_ty).to(tl.float32)
        store(scaled_row, cols, N_COLS, w)
        total += tl.sum(w, axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(sums_ptr + out, total)
    tl.store(sums_ptr + n_outs + out, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, stats_ptr, sums_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = (tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    steps = tl.arange(0, BLOCK_K)
    row_inside, col_inside = rows < M, cols < N

    x_tile = x_ptr + rows[:, None] * stride_x + steps[None, :]
    s_tile = scaled_ptr + cols[None, :] * K + steps[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        a = tl.load(x_tile, mask=row_inside[:, None] & (steps[None, :] < left), other=0.0)
        b = tl.load(s_tile, mask=(steps[:, None] < left) & col_inside[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K

    mean = tl.load(stats_ptr + rows, mask=row_inside, other=0.0)[:, None]
    rstd = tl.load(stats_ptr + M + rows, mask=row_inside, other=0.0)[:, None]
    total = tl.load(sums_ptr + cols, mask=col_inside, other=0.0)[None, :]
    shift = tl.load(sums_ptr + N + cols, mask=col_inside, other=0.0)[None, :]
    y = rstd * (acc - mean * total) + shift
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=row_inside[:, None] & col_inside[None, :])


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
    sums = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, stats, M, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(fold_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, sums, N, weight.stride(0),
        N_COLS=K, BLOCK=min(block_of(K), FOLD_WIDTH),
    )  # fmt: skip
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](x, scaled, stats, sums, out, M, N, K, x.stride(0), out.stride(0))
    return out
