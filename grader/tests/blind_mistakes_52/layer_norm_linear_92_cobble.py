# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | (1) `total += scaled` in `scale_kernel` adds gamma * weight before rounding; it should be the rounded `scaled.to(scaled_ptr.dtype.element_ty).to(tl.float32)` that was stored. It shows in fp16 and bf16 where |mean| of a row is much larger than its deviation (values "far"). (2) `first + program % BAND` in `place_of` should be `first + program % of_band % height`: where the result has more than one tile in width and the number of tile rows is no multiple of 8 (BAND), some tiles of the last band are never written, others computed past the last row (e.g. fp32 with 37 x 129 -> 70, bf16 129 x 4096 -> 1000); with one column of tiles, or tile rows in multiples of 8, it is right.
"""LayerNorm and the Linear layer behind it, with one matrix product in bands of tiles."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

OUTS = tl.constexpr(4)  # rows of the weight that a program of scale_kernel has at once
BAND = tl.constexpr(8)  # rows of tiles that are computed together, so that x and scaled are found in L2


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
):
    """OUTS rows of scaled, gamma * weight in the dtype of the weight, with their sums total and shift.

    shift[j] is the sum of beta * weight[j], plus bias[j]. The sums are fp32, and so are the tiles that add
    up their terms, which are reduced once for all.
    """
    outs = tl.program_id(axis=0) * OUTS + tl.arange(0, OUTS)
    exists = outs < n_outs
    row = outs[:, None].to(tl.int64)
    total = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    shift = tl.zeros((OUTS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = exists[:, None] & (cols < N_COLS)[None, :]
        weight = tl.load(weight_ptr + row * stride_weight + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        scaled = weight * load(gamma_ptr, cols, N_COLS)[None, :]
        tl.store(scaled_ptr + row * N_COLS + cols[None, :], scaled.to(scaled_ptr.dtype.element_ty), mask=inside)
        total += scaled
        shift += weight * load(beta_ptr, cols, N_COLS)[None, :]
    bias = tl.load(bias_ptr + outs, mask=exists, other=0.0).to(tl.float32)
    tl.store(total_ptr + outs, tl.sum(total, axis=1), mask=exists)
    tl.store(shift_ptr + outs, tl.sum(shift, axis=1) + bias, mask=exists)


@triton.jit
def place_of(program, tiles_m, tiles_n):
    """Row and column of the program's tile: the tiles of a band one below the other, then its next column."""
    of_band = BAND * tiles_n
    first = program // of_band * BAND
    height = tl.minimum(tiles_m - first, BAND)
    return first + program % BAND, program % of_band // height


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
    """y = rstd * (x @ scaled.T - mean * total) + shift, a BLOCK_M x BLOCK_N tile for each program.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    tile_m, tile_n = place_of(tl.program_id(axis=0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N))
    rows = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    cols = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows * stride_x + k[None, :], mask=(rows < M) & (k < K)[None, :], other=0.0)
        s = tl.load(scaled_ptr + cols * K + k[:, None], mask=(k < K)[:, None] & (cols < N), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
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
        BLOCK=min(block_of(K), 1024),
    )

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
