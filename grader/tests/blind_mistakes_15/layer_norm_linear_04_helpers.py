# labs/lab4_production_slice/layer_norm_linear.py | error | linear_kernel loads the tile of scaled as BLOCK_N x BLOCK_K and gives it to tl.dot as it is, so the inner sizes differ and the kernel does not compile; it should be tl.dot(x, tl.trans(s), ...), or the tile loaded with K along its rows.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and rstd of a row."""
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
    """Scale a row of the weight, and add up its two sums."""
    row = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        gamma = load(gamma_ptr, cols, N_COLS)
        beta = load(beta_ptr, cols, N_COLS)
        weight = load(weight_ptr + row * stride_weight, cols, N_COLS)
        rounded = (gamma * weight).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + row * N_COLS + cols, rounded, mask=cols < N_COLS)
        total += tl.sum(rounded.to(tl.float32), axis=0)
        shift += tl.sum(beta * weight, axis=0)
    shift += tl.load(bias_ptr + row).to(tl.float32)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def part(base_ptr, lines, n_lines, stride, ks, K):
    """A tile of a matrix, its lines along the first axis and K along the second; 0 outside."""
    inside = (lines[:, None] < n_lines) & (ks[None, :] < K)
    return tl.load(base_ptr + lines[:, None] * stride + ks[None, :], mask=inside, other=0.0)


@triton.jit
def column(base_ptr, indices, size):
    """Numbers of a vector; 0 outside."""
    return tl.load(base_ptr + indices, mask=indices < size, other=0.0)


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
    """Program (j, i) computes a BLOCK_M x BLOCK_N tile of y."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        x = part(x_ptr, rows, M, stride_x, ks, K)
        s = part(scaled_ptr, cols, N, K, ks, K)
        product = tl.dot(x, s, product, input_precision="ieee")
    mean = column(mean_ptr, rows, M)[:, None]
    rstd = column(rstd_ptr, rows, M)[:, None]
    total = column(total_ptr, cols, N)[None, :]
    shift = column(shift_ptr, cols, N)[None, :]
    y = rstd * (product - mean * total) + shift
    at = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(at, y.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    width = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=width)
    launch = on(scale_kernel, x)[(N,)]
    launch(weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=width)
    tiles = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    launch = on(linear_kernel, x)[tiles]
    launch(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
