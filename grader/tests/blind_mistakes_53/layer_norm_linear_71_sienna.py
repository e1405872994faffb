# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_row`, `shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)` uses `w`, which is already gamma * weight; the sum must be of beta times the row of the weight without gamma. y is off by a constant for each output column, in every case (unless gamma is 1 or beta is 0).
"""LayerNorm and the Linear layer behind it, with one matrix product: one launch prepares, one multiplies."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

GROUP = tl.constexpr(8)  # tile rows that are walked through together, so that L2 keeps the scaled weight


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


@triton.jit
def measure_row(x_row, mean_to, rstd_to, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of a row of x."""
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(mean_to, mean)
    tl.store(rstd_to, rstd)


@triton.jit
def scale_row(
    weight_row,
    gamma_ptr,
    beta_ptr,
    bias_at,
    scaled_row,
    total_to,
    shift_to,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Scale a row of the weight by gamma, and store what the epilogue needs to know of this output."""
    total = 0.0
    shift = tl.load(bias_at).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        rounded = w.to(scaled_row.dtype.element_ty)
        store(scaled_row, cols, N_COLS, rounded)
        # The product sees the rounded numbers, so their sum it is.
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_to, total)
    tl.store(shift_to, shift)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    M,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first M programs have a row of x each, the others a row of the weight."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < M:
        measure_row(x_ptr + program * stride_x, mean_ptr + program, rstd_ptr + program, eps, N_COLS, BLOCK)
    else:
        j = program - M
        scale_row(
            weight_ptr + j * stride_weight, gamma_ptr, beta_ptr, bias_ptr + j,
            scaled_ptr + j * N_COLS, total_ptr + j, shift_ptr + j, N_COLS, BLOCK,
        )  # fmt: skip


@triton.jit
def place(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return tile row and tile column of a program, in groups of GROUP tile rows."""
    tall = tl.cdiv(M, BLOCK_M)
    wide = tl.cdiv(N, BLOCK_N)
    first = number // (wide * GROUP) * GROUP
    height = tl.minimum(tall - first, GROUP)
    within = number % (wide * GROUP)
    return first + within % height, within // height


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
    i, j = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = i.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = j.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows[:, None] * stride_x + ks[None, :]
    s_tile = scaled_ptr + cols[:, None] * K + ks[None, :]

    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = (ks < K - k)[None, :]
        x = tl.load(x_tile, mask=(rows < M)[:, None] & left, other=0.0)
        s = tl.load(s_tile, mask=(cols < N)[:, None] & left, other=0.0)
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K

    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    inside = (rows < M)[:, None] & (cols < N)[None, :]
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
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, mean, rstd, scaled, total, shift,
        M, x.stride(0), weight.stride(0), eps, N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
