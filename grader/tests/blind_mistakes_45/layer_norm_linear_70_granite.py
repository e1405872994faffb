# labs/lab4_production_slice/layer_norm_linear.py | corner | Skeleton layer_norm_linear.py. In `linear_kernel`, `rows = row + tl.arange(0, BLOCK_M)[:, None]` is int32, so `rows * stride_y` in the last `tl.store` wraps; it should be `(row + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)`. It shows only where `out` reaches beyond 2^31 elements (rows of `out` very far apart, or very many rows); x and the weight are read by block pointers, which count in int64.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

TALL = 8  # tiles one above the other, whose programs start one after the other


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": TALL}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 64, 64, stages=4, warps=4),
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
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row j of scaled is gamma * weight[j]; total[j] is its sum, shift[j] = beta @ weight[j] + bias[j]."""
    row = tl.program_id(axis=0).to(tl.int64)
    w_row, scaled_row = weight_ptr + row * stride_weight, scaled_ptr + row * N_COLS
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        scaled = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        store(scaled_row, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift + tl.load(bias_ptr + row).to(tl.float32))


@triton.jit
def tile_of(number, down, across, GROUP: tl.constexpr):
    """Return tile row and tile column of the tile of this number: GROUP tile rows at a time, row by row."""
    band = number // (GROUP * across)
    height = tl.minimum(down - band * GROUP, GROUP)
    within = number - band * GROUP * across
    return band * GROUP + within % height, within // height


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
    GROUP: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile_row, tile_col = tile_of(tl.program_id(axis=0), down, across, GROUP)
    row, col = tile_row * BLOCK_M, tile_col * BLOCK_N
    x_block = tl.make_block_ptr(
        x_ptr, shape=(M, K), strides=(stride_x, 1), offsets=(row, 0), block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )  # fmt: skip
    scaled_block = tl.make_block_ptr(
        scaled_ptr, shape=(K, N), strides=(1, K), offsets=(0, col), block_shape=(BLOCK_K, BLOCK_N),
        order=(0, 1),
    )  # fmt: skip
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        scaled = tl.load(scaled_block, boundary_check=(0, 1), padding_option="zero")
        product = tl.dot(x, scaled, product, input_precision="ieee")
        x_block = tl.advance(x_block, (0, BLOCK_K))
        scaled_block = tl.advance(scaled_block, (BLOCK_K, 0))
    rows = row + tl.arange(0, BLOCK_M)[:, None]
    cols = col + tl.arange(0, BLOCK_N)[None, :]
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
    launch = on(statistics_kernel, x)[(M,)]
    launch(x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    launch = on(scale_kernel, x)[(N,)]
    launch(
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    launch = on(linear_kernel, x)[
        lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    ]
    launch(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
