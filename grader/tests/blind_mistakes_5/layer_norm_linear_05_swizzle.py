# labs/lab4_production_slice/layer_norm_linear.py | honest | Right; 1-D grid with tiles in groups of 8 rows, (mean, rstd) and (total, shift) interleaved, tl.trans in the product.
"""LayerNorm + Linear with a 1-D grid: tiles are numbered in groups of GROUP rows, so that x stays in L2."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

GROUP = tl.constexpr(8)

TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=s, num_warps=w)
    for m, n, k, s, w in ((128, 256, 64, 3, 8), (128, 128, 64, 4, 8), (64, 128, 64, 4, 4), (64, 64, 32, 3, 4))
]


def fitting(configs, named_args, **kwargs):
    if named_args["x_ptr"].dtype == torch.float32:
        return configs[-1:]
    return configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, stat_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """stat[i] = (mean, rstd) of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stat_ptr + 2 * row, mean)
    tl.store(stat_ptr + 2 * row + 1, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    w_ptr, gamma_ptr, beta_ptr, bias_ptr, s_ptr, col_ptr, w_ld, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """s[j] = gamma * w[j]; col[j] = (sum of s[j] after rounding, beta . w[j] + bias[j])."""
    row = tl.program_id(axis=0).to(tl.int64)
    w_ptr += row * w_ld
    s_ptr += row * N_COLS
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for first in range(0, N_COLS, BLOCK):
        c = first + tl.arange(0, BLOCK)
        w = load(w_ptr, c, N_COLS)
        s = (w * load(gamma_ptr, c, N_COLS)).to(s_ptr.dtype.element_ty)
        tl.store(s_ptr + c, s, mask=c < N_COLS)
        total += tl.sum(s.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr, c, N_COLS), axis=0)
    tl.store(col_ptr + 2 * row, total)
    tl.store(col_ptr + 2 * row + 1, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    s_ptr,
    stat_ptr,
    col_ptr,
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
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    band = pid // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - band * GROUP, GROUP)
    inner = pid % (GROUP * tiles_n)
    tm = band * GROUP + inner % height
    tn = inner // height

    rows = tm.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tn.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_tile = x_ptr + rows[:, None] * stride_x
    s_tile = s_ptr + cols[:, None] * K
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = (k0 + tl.arange(0, BLOCK_K))[None, :]
        xs = tl.load(x_tile + k, mask=(rows[:, None] < M) & (k < K), other=0.0)
        ss = tl.load(s_tile + k, mask=(cols[:, None] < N) & (k < K), other=0.0)
        acc = tl.dot(xs, tl.trans(ss), acc, input_precision="ieee")

    here, there = rows < M, cols < N
    mean = tl.load(stat_ptr + 2 * rows, mask=here, other=0.0)
    rstd = tl.load(stat_ptr + 2 * rows + 1, mask=here, other=0.0)
    total = tl.load(col_ptr + 2 * cols, mask=there, other=0.0)
    shift = tl.load(col_ptr + 2 * cols + 1, mask=there, other=0.0)
    y = (acc - mean[:, None] * total[None, :]) * rstd[:, None] + shift[None, :]
    at = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(at, y.to(y_ptr.dtype.element_ty), mask=here[:, None] & there[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = x.new_empty((M, N))
    s = x.new_empty((N, K))
    stat = x.new_empty((M, 2), dtype=torch.float32)
    col = x.new_empty((N, 2), dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, stat, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, s, col, weight.stride(0), N_COLS=K, BLOCK=block)
    on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        x, s, stat, col, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
