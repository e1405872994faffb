# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_kernel`, `shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)` uses `w`, which is already gamma * weight (rounded); it must be beta times the plain row of the weight. y is off by beta @ ((gamma - 1) * weight).T for each output, in every case.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


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
HEIGHT = tl.constexpr(8)  # rows of tiles that are walked column by column, so that L2 keeps what they share


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
    """Fold the norm into row j of the weight; program j has row j."""
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    lanes = tl.arange(0, BLOCK)
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        w = load(weight_row, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        w = w.to(scaled_ptr.dtype.element_ty).to(tl.float32)
        store(scaled_row, cols, N_COLS, w)
        total += tl.sum(w, axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def place(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return row and column of a tile, counted in tiles."""
    in_group = tl.cdiv(N, BLOCK_N) * HEIGHT
    first = pid // in_group * HEIGHT
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, HEIGHT)
    within = pid % in_group
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
    """y = rstd * (x @ scaled.T - mean * total) + shift, a BLOCK_M x BLOCK_N tile for each program."""
    i, j = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    row_exists, col_exists = rows < M, cols < N
    x_tile = x_ptr + rows[:, None] * stride_x + ks[None, :]
    s_tile = scaled_ptr + cols[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = K - k
        x = tl.load(x_tile, mask=row_exists[:, None] & (ks < left)[None, :], other=0.0)
        s = tl.load(s_tile, mask=col_exists[None, :] & (ks < left)[:, None], other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    mean = tl.load(mean_ptr + rows, mask=row_exists, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0)
    total = tl.load(total_ptr + cols, mask=col_exists, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=col_exists, other=0.0)
    y = rstd[:, None] * (product - mean[:, None] * total[None, :]) + shift[None, :]
    inside = row_exists[:, None] & col_exists[None, :]
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
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
