# labs/lab4_production_slice/layer_norm_linear.py | right | right
"""LayerNorm + Linear; the tiles of the product are walked in groups, as in lab 3."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on


def tile(block_m, block_n, block_k, *, stages, warps, group=8):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 128, 32, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of row i of x; program i has row i."""
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
    """gamma * weight[j], rounded, with its sum, and the sum of beta * weight[j] plus bias[j]."""
    j = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + j * stride_weight
    scaled_row = scaled_ptr + j * N_COLS
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_row + cols, s, mask=cols < N_COLS)
        total += s.to(tl.float32)
        shift += load(beta_ptr, cols, N_COLS) * w
    tl.store(total_ptr + j, tl.sum(total, axis=0))
    tl.store(shift_ptr + j, tl.sum(shift, axis=0) + tl.load(bias_ptr + j).to(tl.float32))


@triton.jit
def place(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of tile `pid`, in tiles."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = tiles_n * GROUP_M
    first_m = (pid // per_group) * GROUP_M
    height = tl.minimum(tiles_m - first_m, GROUP_M)
    inner = pid % per_group
    return first_m + inner % height, inner // height


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
    GROUP_M: tl.constexpr,
):
    """One BLOCK_M x BLOCK_N tile of rstd * (x @ scaled.T - mean * total) + shift."""
    tile_m, tile_n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    row_ok = rows < M
    col_ok = cols < N

    x_ptrs = x_ptr + rows[:, None] * stride_x + ks[None, :]
    s_ptrs = scaled_ptr + cols[None, :] * K + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        k_ok = ks < K - k
        a = tl.load(x_ptrs, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(s_ptrs, mask=k_ok[:, None] & col_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        x_ptrs += BLOCK_K
        s_ptrs += BLOCK_K

    mean = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=col_ok, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=col_ok, other=0.0)[None, :]
    y = rstd * (acc - mean * total) + shift
    y_ptrs = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=row_ok[:, None] & col_ok[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
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

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    on(linear_kernel, x)[grid](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
