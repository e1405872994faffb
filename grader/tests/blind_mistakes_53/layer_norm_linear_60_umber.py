# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `fold`, `moved += tl.sum(load(beta_ptr, cols, N_COLS) * scaled, axis=0)` sums beta times the scaled row (gamma * weight); it should sum beta times the row of the weight itself, `load(weight_row, cols, N_COLS)`. The shift contains gamma once too often, so every output is off unless gamma is 1 or beta is 0; all cases show it.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

BAND = tl.constexpr(8)  # rows of tiles that are computed together, so that their columns stay in the L2 cache


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


@triton.jit
def measure(x_row, mean_ptr, rstd_ptr, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of one row of x."""
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(mean_ptr, mean)
    tl.store(rstd_ptr, rstd)


@triton.jit
def fold(
    weight_row,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_row,
    total_ptr,
    shift_ptr,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store gamma times one row of the weight, the sum of what was stored, and what this output is moved by."""
    total = 0.0
    moved = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        product = load(weight_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        rounded = product.to(scaled_row.dtype.element_ty)
        tl.store(scaled_row + cols, rounded, mask=inside)
        scaled = rounded.to(tl.float32)
        total += tl.sum(scaled, axis=0)
        moved += tl.sum(load(beta_ptr, cols, N_COLS) * scaled, axis=0)
    tl.store(total_ptr, total)
    tl.store(shift_ptr, moved + tl.load(bias_ptr).to(tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    mean_ptr,
    rstd_ptr,
    total_ptr,
    shift_ptr,
    n_outs,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first n_outs programs have a row of the weight each, the others a row of x each."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_outs:
        fold(
            weight_ptr + program * stride_weight,
            gamma_ptr,
            beta_ptr,
            bias_ptr + program,
            scaled_ptr + program * N_COLS,
            total_ptr + program,
            shift_ptr + program,
            N_COLS,
            BLOCK,
        )
    else:
        row = program - n_outs
        measure(x_ptr + row * stride_x, mean_ptr + row, rstd_ptr + row, eps, N_COLS, BLOCK)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a tile, in bands of BAND rows of tiles.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    program = tl.program_id(axis=0)
    across = tl.cdiv(N, BLOCK_N)
    in_band = across * BAND
    first = program // in_band * BAND
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, BAND)
    tile_m = first + program % in_band % height
    tile_n = program % in_band // height

    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows[:, None] * stride_x + ks[None, :]
    scaled_tile = scaled_ptr + cols[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        a = tl.load(x_tile, mask=(rows[:, None] < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(scaled_tile, mask=(cols[None, :] < N) & (ks[:, None] < left), other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
        x_tile += BLOCK_K
        scaled_tile += BLOCK_K

    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(y_ptr + rows[:, None] * stride_y + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


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
    on(prepare_kernel, x)[(N + M,)](
        x,
        weight,
        gamma,
        beta,
        bias,
        scaled,
        mean,
        rstd,
        total,
        shift,
        N,
        x.stride(0),
        weight.stride(0),
        eps,
        N_COLS=K,
        BLOCK=block_of(K),
    )

    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
