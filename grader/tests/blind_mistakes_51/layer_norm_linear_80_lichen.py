# labs/lab4_production_slice/layer_norm_linear.py | right | One launch of M + N programs prepares both the statistics of the rows and the scaled weight, by a branch on the number of the program; the product is by persistent programs, 264 at most, each of which takes every so many-th tile, with the loop along K in a helper.
"""LayerNorm and the Linear layer behind it: one launch prepares rows and weight, persistent programs multiply."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

PROGRAMS = 264  # of the product at most, two for each of 132 SMs; each takes tile after tile


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 128, 32, stages=4, warps=8),
    tile(64, 128, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def scale_row(
    weight_row, gamma_ptr, beta_ptr, bias, scaled_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Store gamma times a row of the weight, rounded to its dtype.

    Return the sum of what was stored, and the sum of beta times the row, plus the bias of this output.
    """
    total = 0.0
    shift = bias.to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_row, cols, N_COLS)
        rounded = (weight * load(gamma_ptr, cols, N_COLS)).to(scaled_row.dtype.element_ty)
        store(scaled_row, cols, N_COLS, rounded)
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(weight * load(beta_ptr, cols, N_COLS), axis=0)
    return total, shift


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr,
    n_rows, stride_x, stride_weight, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Programs below n_rows have a row of x, mean and rstd; those behind have a row of the weight."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_rows:
        mean, rstd = mean_and_rstd(x_ptr + program * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + program, mean)
        tl.store(rstd_ptr + program, rstd)
    else:
        out = program - n_rows
        weight_row = weight_ptr + out * stride_weight
        scaled_row = scaled_ptr + out * N_COLS
        total, shift = scale_row(
            weight_row, gamma_ptr, beta_ptr, tl.load(bias_ptr + out), scaled_row, N_COLS, BLOCK
        )
        tl.store(total_ptr + out, total)
        tl.store(shift_ptr + out, shift)


@triton.jit
def product_of(
    x_ptr, scaled_ptr, rows, cols, M, N, K, stride_x,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return a tile of x @ scaled.T in fp32; rows and cols are int64 vectors."""
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a_inside = (rows < M)[:, None] & (ks < K)[None, :]
        b_inside = (ks < K)[:, None] & (cols < N)[None, :]
        a = tl.load(x_ptr + rows[:, None] * stride_x + ks[None, :], mask=a_inside, other=0.0)
        b = tl.load(scaled_ptr + cols[None, :] * K + ks[:, None], mask=b_inside, other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
    return product


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program has every so many-th tile, row by row."""
    across = tl.cdiv(N, BLOCK_N)
    tiles = across * tl.cdiv(M, BLOCK_M)
    for number in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        rows = number // across * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
        cols = number % across * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
        product = product_of(x_ptr, scaled_ptr, rows, cols, M, N, K, stride_x, BLOCK_M, BLOCK_N, BLOCK_K)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
        total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
        shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
        y = rstd * (product - mean * total) + shift
        inside = (rows < M)[:, None] & (cols < N)[None, :]
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
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, mean, rstd, total, shift, M, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    grid = lambda meta: (  # noqa: E731
        min(triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), PROGRAMS),
    )
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
