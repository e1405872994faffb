# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | (1) scale_kernel loads gamma and beta once, in front of the loop, so for more than 256 columns (BLOCK is at most 256 in its launch) each later block is scaled and shifted with gamma and beta of columns 0 to 255; they should be loaded in the loop at start + lanes. (2) layer_norm_linear_forward passes the constant EPS = 1e-5 to statistics_kernel instead of its argument eps, so calls with another eps are wrong.
"""LayerNorm + Linear: the norm is applied to the tile of the product, when it is complete."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

EPS = 1e-5
CHUNK = 256  # columns of the weight at a time


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [tile(128, bn, 64, stages=s, warps=8) for bn in (128, 256) for s in (3, 4)] + [tile(64, 64, 32, stages=2, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32 and for small problems."""
    small = named_args["M"] < 128 or named_args["x_ptr"].dtype == torch.float32
    # With four stages the widest tile needs more shared memory than there is.
    enough = [c for c in configs if c.kwargs["BLOCK_N"] * c.num_stages <= 768]
    return configs[-1:] if small else enough


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=WARPS[:1], key=["N_COLS"])
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
    lanes = tl.arange(0, BLOCK)
    gamma = load(gamma_ptr, lanes, N_COLS)
    beta = load(beta_ptr, lanes, N_COLS)
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        weight = load(weight_ptr + row * stride_weight, start + lanes, N_COLS)
        rounded = (gamma * weight).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + row * N_COLS, start + lanes, N_COLS, rounded)
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(beta * weight, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def one_step(product, x_ptrs, s_ptrs, row_ok, col_ok, k_down, k_across, K, TAIL: tl.constexpr):
    """product plus one block of K; only the last one may be cut off."""
    if TAIL:
        x = tl.load(x_ptrs, mask=row_ok & (k_across < K), other=0.0)
        s = tl.load(s_ptrs, mask=col_ok & (k_down < K), other=0.0)
    else:
        x = tl.load(x_ptrs, mask=row_ok, other=0.0)
        s = tl.load(s_ptrs, mask=col_ok, other=0.0)
    return tl.dot(x, s, product, input_precision="ieee")


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    row_ok = rows < M
    col_ok = cols < N
    across = tl.arange(0, BLOCK_K)[None, :]
    down = tl.arange(0, BLOCK_K)[:, None]
    x_tile = x_ptr + rows * stride_x + across
    s_tile = scaled_ptr + cols * K + down
    whole = K // BLOCK_K * BLOCK_K

    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, whole, BLOCK_K):
        product = one_step(product, x_tile + k, s_tile + k, row_ok, col_ok, k + down, k + across, K, TAIL=False)
    for k in range(whole, K, BLOCK_K):
        product = one_step(product, x_tile + k, s_tile + k, row_ok, col_ok, k + down, k + across, K, TAIL=True)

    # mean * total is what the mean of the row adds to the product.
    product -= tl.load(mean_ptr + rows, mask=row_ok, other=0.0) * tl.load(total_ptr + cols, mask=col_ok, other=0.0)
    product *= tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
    y = product + tl.load(shift_ptr + cols, mask=col_ok, other=0.0)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=row_ok & col_ok)


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

    statistics = on(statistics_kernel, x)[(M,)]
    statistics(x, mean, rstd, x.stride(0), EPS, N_COLS=K, BLOCK=block_of(K))

    scale = on(scale_kernel, x)[(N,)]
    scale(
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=min(block_of(K), CHUNK)
    )

    linear = on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))]
    linear(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
