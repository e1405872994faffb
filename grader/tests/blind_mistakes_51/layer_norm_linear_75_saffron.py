# labs/lab4_production_slice/layer_norm_linear.py | corner | In `scale_kernel`, `step = row * stride_weight` is also the offset of the row of `scaled` (`store(scaled_ptr + step, ...)`), which is contiguous: that should be `row * N_COLS`. Where the rows of the weight lie apart, the scaled rows are stored at wrong places and past the end of `scaled`; right for a contiguous weight.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
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


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Row j of scaled is gamma * weight[j], rounded to its dtype; program j has row j.

    total[j] is the sum of that row, and shift[j] the sum of beta * weight[j], plus bias[j]; both are fp32.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    step = row * stride_weight
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr + step, cols, N_COLS)
        scaled = (load(gamma_ptr, cols, N_COLS) * weight).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + step, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * weight, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)[None, :]
    in_rows, in_cols = rows < M, cols < N
    x_tile = x_ptr + rows[:, None].to(tl.int64) * stride_x + ks
    s_tile = scaled_ptr + cols[:, None].to(tl.int64) * K + ks
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = ks < K - k
        x = tl.load(x_tile, mask=in_rows[:, None] & left, other=0.0)
        s = tl.load(s_tile, mask=in_cols[:, None] & left, other=0.0)
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    mean = tl.load(mean_ptr + rows, mask=in_rows, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=in_rows, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=in_cols, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=in_cols, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_tile = y_ptr + rows[:, None].to(tl.int64) * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])


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
    sizes = {"N_COLS": K, "BLOCK": min(block_of(K), 4096)}
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **sizes)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **sizes)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
