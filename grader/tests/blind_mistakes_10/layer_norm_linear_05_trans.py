# labs/lab4_production_slice/layer_norm_linear.py | error | layer_norm_linear_forward keeps the scaled weight in fp32 (`scaled = torch.empty((N, K), ..., dtype=torch.float32)`), and the tile goes into tl.dot beside a tile of x: tl.dot takes two operands of one dtype, so fp16 and bf16 do not compile; scaled must have the dtype of x. fp32 is right.
"""LayerNorm + Linear: the scaled weight is kept without rounding, so its total is exact."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

SIZES = [(128, 128, 64, 3, 8), (128, 128, 32, 4, 8), (64, 128, 64, 4, 4), (64, 64, 32, 3, 4)]
TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in SIZES
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and rstd of row i."""
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
    """gamma * weight[j], the sum of it, and beta times weight[j] plus the bias."""
    j = tl.program_id(axis=0).to(tl.int64)
    source = weight_ptr + j * stride_weight
    target = scaled_ptr + j * N_COLS
    total = 0.0
    shift = tl.load(bias_ptr + j).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(source, cols, N_COLS)
        s = w * load(gamma_ptr, cols, N_COLS)
        store(target, cols, N_COLS, s)
        total += tl.sum(s, axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_ptr + j, total)
    tl.store(shift_ptr + j, shift)


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
    """A tile of the product, then the norm."""
    i = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    j = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + i[:, None] * stride_x + k[None, :]
    s_tile = scaled_ptr + j[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        here = (k < K - done)[None, :]
        x = tl.load(x_tile, mask=(i < M)[:, None] & here, other=0.0)
        s = tl.load(s_tile, mask=(j < N)[:, None] & here, other=0.0)
        acc = tl.dot(x, tl.trans(s), acc, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    mean = tl.load(mean_ptr + i, mask=i < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + i, mask=i < M, other=0.0)[:, None]
    total = tl.load(total_ptr + j, mask=j < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + j, mask=j < N, other=0.0)[None, :]
    y = rstd * (acc - mean * total) + shift
    inside = (i < M)[:, None] & (j < N)[None, :]
    tl.store(y_ptr + i[:, None] * stride_y + j[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias."""
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=torch.float32)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
