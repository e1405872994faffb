# labs/lab4_production_slice/layer_norm_linear.py | right | right
"""LayerNorm and the Linear layer behind it, with one matrix product, its tiles in groups of rows."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


LARGE = [tile(128, n, 64, stages=stages, warps=8) for n in (128, 256) for stages in (3, 4)]
TILES = [*LARGE, tile(64, 64, 32, stages=3, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
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
    """Scale row j of the weight, and store the two numbers that output j needs; program j has row j."""
    row = tl.program_id(axis=0).to(tl.int64)
    source = weight_ptr + row * stride_weight
    target = scaled_ptr + row * N_COLS
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(source, cols, N_COLS)
        gamma = load(gamma_ptr, cols, N_COLS)
        beta = load(beta_ptr, cols, N_COLS)
        # Rounded first, so that the total is that of the numbers that the product will see.
        rounded = (gamma * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(target + cols, rounded, mask=cols < N_COLS)
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(beta * weight, axis=0)
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
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift, one tile for each program.

    Programs go down GROUP tiles before they step to the next column of tiles, so that neighbours share what
    they read.
    """
    program = tl.program_id(axis=0)
    tiles_down = tl.cdiv(M, BLOCK_M)
    tiles_across = tl.cdiv(N, BLOCK_N)
    in_group = tiles_across * GROUP
    first = (program // in_group) * GROUP
    height = tl.minimum(tiles_down - first, GROUP)
    place = program % in_group
    tile_m = first + place % height
    tile_n = place // height

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    outs = tile_n * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    lanes = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows[:, None] * stride_x + lanes[None, :]
    s_tile = scaled_ptr + outs[:, None] * K + lanes[None, :]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = (start + lanes)[None, :] < K
        x = tl.load(x_tile, mask=(rows[:, None] < M) & left, other=0.0)
        s = tl.load(s_tile, mask=(outs[:, None] < N) & left, other=0.0)
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K

    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + outs, mask=outs < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + outs, mask=outs < N, other=0.0)[None, :]
    y = (product - mean * total) * rstd + shift
    inside = (rows[:, None] < M) & (outs[None, :] < N)
    target = y_ptr + rows[:, None] * stride_y + outs[None, :]
    tl.store(target, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0), GROUP=8
    )
    return out
