# labs/lab4_production_slice/layer_norm_linear.py | right | The product has a one-dimensional grid in groups of tile rows as in lab 3 with GROUP_M in the configs, statistics_kernel walks over rows in persistent turns, and scale_kernel takes tiles of four rows.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on

TURNS = 1024  # programs of statistics_kernel at most
W_ROWS = 4  # rows of the weight in a program of scale_kernel
W_COLS = 1024


def tile(block_m, block_n, block_k, *, stages, warps, group=8):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": group}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(256, 128, 64, stages=3, warps=8, group=4),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=4, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(
    x_ptr, mean_ptr, rstd_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Mean and rstd of rows i, i + programs, i + 2 programs ..."""
    mine = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + mine * stride_x
    hop = tl.num_programs(axis=0).to(tl.int64)
    for row in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + row, mean)
        tl.store(rstd_ptr + row, rstd)
        x_row += hop * stride_x


@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """ROWS rows of scaled, and their sums."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    live = rows < n_outs
    totals = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    shifts = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = live[:, None] & (cols < N_COLS)[None, :]
        w = tl.load(weight_ptr + rows[:, None] * stride_weight + cols[None, :], mask=inside, other=0.0)
        w = w.to(tl.float32)
        gamma = tl.load(gamma_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        s = (w * gamma[None, :]).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + rows[:, None] * N_COLS + cols[None, :], s, mask=inside)
        totals += s.to(tl.float32)
        shifts += w * beta[None, :]
    bias = tl.load(bias_ptr + rows, mask=live, other=0.0).to(tl.float32)
    tl.store(total_ptr + rows, tl.sum(totals, axis=1), mask=live)
    tl.store(shift_ptr + rows, tl.sum(shifts, axis=1) + bias, mask=live)


@triton.jit
def place(pid, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of tile pid."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = pid // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = pid % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


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
    """y = rstd * (x @ scaled.T - mean * total) + shift, a tile for each program."""
    row0, col0 = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = row0 + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = col0 + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows * stride_x + ks[None, :]
    s_ptrs = scaled_ptr + cols * K + ks[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_ptrs, mask=(rows < M) & (ks[None, :] < K - k), other=0.0)
        s = tl.load(s_ptrs, mask=(cols < N) & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(x, s, acc, input_precision="ieee")
        x_ptrs += BLOCK_K
        s_ptrs += BLOCK_K
    acc -= tl.load(mean_ptr + rows, mask=rows < M, other=0.0) * tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    acc *= tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    acc += tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    tl.store(y_ptr + rows * stride_y + cols, acc.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(min(M, TURNS),)](
        x, mean, rstd, M, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K)
    )
    on(scale_kernel, x)[(triton.cdiv(N, W_ROWS),)](
        weight,
        gamma,
        beta,
        bias,
        scaled,
        total,
        shift,
        N,
        weight.stride(0),
        N_COLS=K,
        BLOCK=min(block_of(K), W_COLS),
        ROWS=W_ROWS,
    )
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[tiles](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
