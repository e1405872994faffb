# labs/lab4_production_slice/layer_norm_linear.py | corner | in scale_kernel `shift += tl.sum(...) + bias` stands in the loop over the blocks of columns, so the bias is added once for each block instead of once behind (or before) the loop. A block here has at most 1024 columns: wrong only for n_cols > 1024 (8201, 4096, 3001, 40000), where y is off by (number of blocks - 1) * bias, the same in each row
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

STRIP = 1024  # columns that scale_kernel takes at a time, of OUTS rows of the weight
OUTS = 4
BAND = 8  # tiles of rows that are computed one after the other, for the same columns


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    *(tile(128, block_n, 64, stages=stages, warps=8) for block_n, stages in ((128, 4), (256, 3))),
    tile(64, 64, 32, stages=2, warps=4),
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
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    OUTS: tl.constexpr,
):
    """Row j of scaled is gamma * weight[j], rounded to its dtype; a program has OUTS rows.

    gamma and beta are loaded once for all of them. total[j] is the sum of a scaled row, and shift[j] the sum
    of beta * weight[j], plus bias[j]; both are fp32.
    """
    outs = tl.program_id(axis=0).to(tl.int64) * OUTS + tl.arange(0, OUTS)
    exists = outs < n_outs
    down = outs[:, None]
    bias = load(bias_ptr, outs, n_outs)
    total = tl.zeros((OUTS,), dtype=tl.float32)
    shift = tl.zeros((OUTS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists[:, None] & (cols < N_COLS)
        w = tl.load(weight_ptr + down * stride_weight + cols, mask=inside, other=0.0).to(tl.float32)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + down * N_COLS + cols, s, mask=inside)
        total += tl.sum(s.to(tl.float32), axis=1)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=1) + bias
    store(total_ptr, outs, n_outs, total)
    store(shift_ptr, outs, n_outs, shift)


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
    BAND: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; each program computes a BLOCK_M x BLOCK_N tile.

    The programs go down a band of BAND tiles before they go on to the next columns, as long as x and scaled
    are still in the L2 cache.
    """
    program = tl.program_id(axis=0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band = program // (tiles_n * BAND)
    in_band = program % (tiles_n * BAND)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - band * BAND, BAND)
    tile_m = band * BAND + in_band % height
    tile_n = in_band // height

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    in_k = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows * stride_x + in_k[None, :]
    scaled_tile = scaled_ptr + cols * K + in_k[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(x_tile + start, mask=(rows < M) & (in_k[None, :] < left), other=0.0)
        b = tl.load(scaled_tile + start, mask=(cols < N) & (in_k[:, None] < left), other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")

    mean = load(mean_ptr, rows, M)
    rstd = load(rstd_ptr, rows, M)
    y = rstd * (product - mean * load(total_ptr, cols, N)) + load(shift_ptr, cols, N)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(triton.cdiv(N, OUTS),)](
        weight,
        gamma,
        beta,
        bias,
        scaled,
        total,
        shift,
        N,
        weight.stride(0),
        N_COLS=K,
        BLOCK=min(block_of(K), STRIP),
        OUTS=OUTS,
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0), BAND=BAND
    )
    return out
