# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | Both in `scale_kernel`. (1) `total += tl.sum(scaled, axis=0)` sums the scaled row before rounding; it should be the sum of `scaled.to(scaled_ptr.dtype.element_ty).to(tl.float32)`, as the docstring and the README say. Shows in fp16 and bf16 where the mean of a row is large against its deviation. (2) `shift += tl.sum(...) + bias` adds the bias once for each block; it should be added once, outside the loop. Shows for more than 2048 columns (two or more blocks of `SLICE`), in every dtype.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

SLICE = 2048  # columns of a row of the weight that are scaled at a time
PROGRAMS = 264  # of the product at most: two for each SM of a large GPU


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
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
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
    bias = tl.load(bias_ptr + row).to(tl.float32)
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr + row * stride_weight, cols, N_COLS)
        scaled = load(gamma_ptr, cols, N_COLS) * weight
        store(scaled_ptr + row * N_COLS, cols, N_COLS, scaled)
        total += tl.sum(scaled, axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * weight, axis=0) + bias
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def multiply(
    x_ptr,
    scaled_ptr,
    rows,
    cols,
    M,
    N,
    K,
    stride_x,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A tile of x @ scaled.T at a column of rows and a row of columns, in fp32."""
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows * stride_x + ks[None, :]
    scaled_tile = scaled_ptr + cols * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        x = tl.load(x_tile, mask=(rows < M) & (ks[None, :] < left), other=0.0)
        scaled = tl.load(scaled_tile, mask=(ks[:, None] < left) & (cols < N), other=0.0)
        product = tl.dot(x, scaled, product, input_precision="ieee")
        x_tile += BLOCK_K
        scaled_tile += BLOCK_K
    return product


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program i computes tiles i, i + programs, ...

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    across = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * across
    for number in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        rows = number // across * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        cols = number % across * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
        product = multiply(x_ptr, scaled_ptr, rows, cols, M, N, K, stride_x, BLOCK_M, BLOCK_N, BLOCK_K)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
        shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
        y = rstd * (product - mean * total) + shift
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


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
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=min(block, SLICE)
    )
    on(linear_kernel, x)[
        lambda meta: (min(triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), PROGRAMS),)
    ](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
