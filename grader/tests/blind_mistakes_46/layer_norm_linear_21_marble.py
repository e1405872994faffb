# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | `linear_kernel`: `y = (product - offset * total) * rstd + shift`, where `offset` is already mean * rstd, so the term of the mean gets rstd twice; it should be `product * rstd - offset * total + shift`. Wrong in all cases but where rstd is 1 or the mean is 0; also in `layer_norm_linear`.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

NARROW = 4096  # columns of the weight that are scaled at a time
GROUP = tl.constexpr(8)  # rows of tiles that are computed together


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 256, 64, stages=4, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, offset_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store 1 / sqrt(variance + eps) of row i of x, and its mean in units of the deviation, mean * rstd."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(offset_ptr + row, mean * rstd)
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
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_row, cols, N_COLS)
        rounded = (load(gamma_ptr, cols, N_COLS) * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_row + cols, rounded, mask=cols < N_COLS)
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * weight, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def place(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and first column of a tile: GROUP rows of tiles at a time, column by column."""
    across = tl.cdiv(N, BLOCK_N)
    in_group = GROUP * across
    first = number // in_group * GROUP
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP)
    within = number % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    offset_ptr,
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
    """y = layer_norm(x) @ weight.T + bias, from x, the scaled weight, and two numbers for each row and column.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). offset and rstd have M numbers, total and shift N.
    """
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = m + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = n + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    across = tl.arange(0, BLOCK_K)[None, :]
    down = tl.arange(0, BLOCK_K)[:, None]
    x_tile = x_ptr + rows * stride_x + across
    scaled_tile = scaled_ptr + cols * K + down
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_tile + k, mask=(rows < M) & (across < K - k), other=0.0)
        scaled = tl.load(scaled_tile + k, mask=(cols < N) & (down < K - k), other=0.0)
        product = tl.dot(x, scaled, product, input_precision="ieee")
    offset = tl.load(offset_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = (product - offset * total) * rstd + shift
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
    offset, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, offset, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=min(block, NARROW)
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, offset, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
