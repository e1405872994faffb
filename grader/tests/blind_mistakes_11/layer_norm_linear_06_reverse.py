# labs/lab4_production_slice/layer_norm_linear.py | contract | `eps if eps > 0 else 1e-5` in layer_norm_linear_forward replaces eps = 0 by the default, as a guard against a division by zero; README: "eps of any size is honoured, also 0 and 1. With eps = 0 no row is constant". eps must be passed as it is. Shows with eps = 0 where the variance of a row is small.
"""LayerNorm + Linear; the steps along K go from the last to the first, so that only the first step needs a mask of K."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def candidate(m, n, k, stages, warps):
    """A tile of m x n, k at a time."""
    return triton.Config({"M_TILE": m, "N_TILE": n, "K_TILE": k}, num_stages=stages, num_warps=warps)


TILES = [candidate(128, 256, 64, 3, 8), candidate(128, 128, 64, 4, 8), candidate(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """The smallest for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """mean_and_rstd of each row."""
    i = tl.program_id(0)
    mean, rstd = mean_and_rstd(x_ptr + i.to(tl.int64) * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)


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
    """gamma * weight, and what is left of mean and beta."""
    j = tl.program_id(0).to(tl.int64)
    row = weight_ptr + j * stride_weight
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    shifts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(row, cols, N_COLS)
        rounded = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + j * N_COLS + cols, rounded, mask=cols < N_COLS)
        totals += rounded.to(tl.float32)
        shifts += load(beta_ptr, cols, N_COLS) * w
    tl.store(total_ptr + j, tl.sum(totals, axis=0))
    tl.store(shift_ptr + j, tl.sum(shifts, axis=0) + tl.load(bias_ptr + j).to(tl.float32))


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
    M_TILE: tl.constexpr,
    N_TILE: tl.constexpr,
    K_TILE: tl.constexpr,
):
    """One tile of y."""
    i = tl.program_id(1) * M_TILE + tl.arange(0, M_TILE)
    j = tl.program_id(0) * N_TILE + tl.arange(0, N_TILE)
    i_in = (i < M)[:, None]
    j_in = (j < N)[None, :]
    x_rows = x_ptr + i.to(tl.int64)[:, None] * stride_x
    s_rows = scaled_ptr + j.to(tl.int64)[None, :] * K
    last = (tl.cdiv(K, K_TILE) - 1) * K_TILE

    ks = last + tl.arange(0, K_TILE)
    a = tl.load(x_rows + ks[None, :], mask=i_in & (ks < K)[None, :], other=0.0)
    b = tl.load(s_rows + ks[:, None], mask=j_in & (ks < K)[:, None], other=0.0)
    acc = tl.dot(a, b, input_precision="ieee")
    for step in range(0, last, K_TILE):
        ks = last - K_TILE - step + tl.arange(0, K_TILE)
        a = tl.load(x_rows + ks[None, :], mask=i_in, other=0.0)
        b = tl.load(s_rows + ks[:, None], mask=j_in, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    acc -= load(mean_ptr, i, M)[:, None] * load(total_ptr, j, N)[None, :]
    y = acc * load(rstd_ptr, i, M)[:, None] + load(shift_ptr, j, N)[None, :]
    y_rows = y_ptr + i.to(tl.int64)[:, None] * stride_y
    tl.store(y_rows + j[None, :], y.to(y_ptr.dtype.element_ty), mask=i_in & j_in)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """LayerNorm of x and the Linear layer behind it."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=weight.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    eps = eps if eps > 0 else 1e-5  # a row without variance would divide by 0
    sizes = dict(N_COLS=K, BLOCK=block_of(K))
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **sizes)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **sizes)
    launch = on(linear_kernel, x)[
        lambda meta: (triton.cdiv(N, meta["N_TILE"]), triton.cdiv(M, meta["M_TILE"]))
    ]
    launch(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
