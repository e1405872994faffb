# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `weight_kernel`, `shifts += beta * s` should take the weight before it is scaled, `beta * w.to(tl.float32)`: s is gamma * weight, so gamma gets into the shift. y is wrong in every case where gamma is not 1 and beta not 0.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

GROUP = tl.constexpr(8)  # rows of tiles that are walked column by column

TILES = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
]


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


@triton.jit
def weight_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    n_outs,
    n_cols,
    stride_weight,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Scale ROWS rows of the weight by gamma, and find what each of them adds to the result by itself."""
    outs = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    rows = outs.to(tl.int64)[:, None]
    totals = tl.zeros((ROWS, COLS), dtype=tl.float32)
    shifts = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_cols, COLS):
        cols = start + tl.arange(0, COLS)[None, :]
        inside = (rows < n_outs) & (cols < n_cols)
        gamma = load(gamma_ptr, cols, n_cols)
        beta = load(beta_ptr, cols, n_cols)
        w = tl.load(weight_ptr + rows * stride_weight + cols, mask=inside, other=0.0)
        rounded = (gamma * w.to(tl.float32)).to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + rows * n_cols + cols, rounded, mask=inside)
        s = rounded.to(tl.float32)
        totals += s
        shifts += beta * s
    exists = outs < n_outs
    bias = tl.load(bias_ptr + outs, mask=exists, other=0.0).to(tl.float32)
    tl.store(total_ptr + outs, tl.sum(totals, axis=1), mask=exists)
    tl.store(shift_ptr + outs, tl.sum(shifts, axis=1) + bias, mask=exists)


@triton.jit
def place(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return row and column of a tile, counted in tiles, in groups of GROUP rows."""
    tiles_m = (M + BLOCK_M - 1) // BLOCK_M
    tiles_n = (N + BLOCK_N - 1) // BLOCK_N
    in_group = tiles_n * GROUP
    first = (number // in_group) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = number % in_group
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
    """y = rstd * (x @ scaled.T - mean * total) + shift, a tile for each program."""
    i, j = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = i * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = j * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    across = tl.arange(0, BLOCK_K)[None, :]
    down = tl.arange(0, BLOCK_K)[:, None]
    x_tile = x_ptr + rows * stride_x + across
    s_tile = scaled_ptr + cols * K + down
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        x = tl.load(x_tile, mask=(rows < M) & (across < K - k), other=0.0)
        s = tl.load(s_tile, mask=(cols < N) & (down < K - k), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


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
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(weight_kernel, x)[(triton.cdiv(N, 4),)](
        weight, gamma, beta, bias, scaled, total, shift, N, K, weight.stride(0), ROWS=4, COLS=512
    )
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
