# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_kernel`, `shifts += load(beta_ptr, cols, N_COLS) * w` takes `w` after `w = s.to(tl.float32)`, the scaled row gamma * weight, so shift is the sum of beta * gamma * weight plus bias; it should be beta times the row of the weight as loaded. Shows in all cases (wherever beta is not 0 and gamma is not 1).
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

GROUP = tl.constexpr(8)  # rows of tiles that are computed together, so that tiles of both operands are reused
WIDTH = 4096  # columns of a block of the weight


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
    """Row j of scaled is the row of the weight as the tensor cores take it; program j has row j.

    total[j] and shift[j] are the two numbers of output j for the epilogue of the product, both fp32.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    shifts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_row + cols, s, mask=cols < N_COLS)
        w = s.to(tl.float32)  # what the product will see of it
        totals += w
        shifts += load(beta_ptr, cols, N_COLS) * w
    tl.store(total_ptr + row, tl.sum(totals, axis=0))
    tl.store(shift_ptr + row, tl.sum(shifts, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.jit
def place_of(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return row and column of a tile, where GROUP rows of tiles are counted column by column."""
    high = tl.cdiv(M, BLOCK_M)
    band = GROUP * tl.cdiv(N, BLOCK_N)
    above = number // band * GROUP
    height = tl.minimum(high - above, GROUP)
    within = number % band
    return above + within % height, within // height


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    tile_m, tile_n = place_of(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    depth = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows * stride_x + depth[None, :]
    s_tile = scaled_ptr + cols * K + depth[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        left = K - done
        x = tl.load(x_tile, mask=(rows < M) & (depth[None, :] < left), other=0.0)
        s = tl.load(s_tile, mask=(cols < N) & (depth[:, None] < left), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K

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
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=min(block, WIDTH)
    )
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
