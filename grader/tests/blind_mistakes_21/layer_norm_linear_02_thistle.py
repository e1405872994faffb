# labs/lab4_production_slice/layer_norm_linear.py | error | linear_kernel: tl.dot(x_tile, s_tile) multiplies (BLOCK_M, BLOCK_K) by (BLOCK_N, BLOCK_K) without transposing s_tile (BLOCK_K differs from BLOCK_N in every config), so Triton raises on the inner dimensions; it should be tl.trans(s_tile).
"""LayerNorm + Linear with one product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

SHAPES = ((128, 256, 64, 3, 8), (128, 128, 32, 4, 8), (64, 128, 64, 3, 4), (64, 64, 32, 2, 4))
TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SHAPES
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of each row."""
    i = tl.program_id(axis=0).to(tl.int64)
    mu, inverse = mean_and_rstd(x_ptr + i * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + i, mu)
    tl.store(rstd_ptr + i, inverse)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """gamma * weight[j], rounded, with its sum; and beta . weight[j] + bias[j]."""
    j = tl.program_id(axis=0).to(tl.int64)
    sum_s = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_b = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        k = first + tl.arange(0, BLOCK)
        w = load(weight_ptr + j * stride_weight, k, N_COLS)
        s = (w * load(gamma_ptr, k, N_COLS)).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + j * N_COLS + k, s, mask=k < N_COLS)
        sum_s += s.to(tl.float32)
        sum_b += w * load(beta_ptr, k, N_COLS)
    bias = tl.load(bias_ptr + j).to(tl.float32)
    tl.store(total_ptr + j, tl.sum(sum_s, axis=0))
    tl.store(shift_ptr + j, tl.sum(sum_b, axis=0) + bias)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A tile of y = rstd * (x @ scaled.T - mean * total) + shift."""
    i = (tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    x_rows = x_ptr + i[:, None] * stride_x
    s_rows = scaled_ptr + j[:, None] * K
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)[None, :]
        x_tile = tl.load(x_rows + k, mask=(i[:, None] < M) & (k < K), other=0.0)
        s_tile = tl.load(s_rows + k, mask=(j[:, None] < N) & (k < K), other=0.0)
        acc += tl.dot(x_tile, s_tile, input_precision="ieee")
    mu = tl.load(mean_ptr + i, mask=i < M, other=0.0)[:, None]
    inverse = tl.load(rstd_ptr + i, mask=i < M, other=0.0)[:, None]
    total = tl.load(total_ptr + j, mask=j < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + j, mask=j < N, other=0.0)[None, :]
    y = (acc - mu * total) * inverse + shift
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(y_ptr + i[:, None] * stride_y + j[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias."""
    M, K = x.shape
    N = weight.size(0)
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean = torch.empty((M,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((M,), device=x.device, dtype=torch.float32)
    total = torch.empty((N,), device=x.device, dtype=torch.float32)
    shift = torch.empty((N,), device=x.device, dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block
    )

    def grid(meta):
        return triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"])

    on(linear_kernel, x)[grid](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
