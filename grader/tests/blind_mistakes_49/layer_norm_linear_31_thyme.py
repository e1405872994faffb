# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_kernel`, `w = (w * gamma).to(...)` overwrites the loaded weight, so `shifts += w * beta` adds gamma * weight * beta; it should be the unscaled weight times beta. y is off by a constant for each output column in all cases (where gamma is not 1 and beta not 0).
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import load, on, store

STRIP = 4096  # columns of a row that a program has in registers at a time
FEW_WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


def tile(block_m, block_n, block_k, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 128, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=FEW_WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=FEW_WARPS, key=["N_COLS"])
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
    """Row j of scaled is gamma * weight[j], rounded to its dtype; total[j] and shift[j] belong to output j."""
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    shifts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        gamma = load(gamma_ptr, cols, N_COLS)
        beta = load(beta_ptr, cols, N_COLS)
        w = (w * gamma).to(scaled_ptr.dtype.element_ty).to(tl.float32)
        store(scaled_row, cols, N_COLS, w)
        totals += w
        shifts += w * beta
    tl.store(total_ptr + row, tl.sum(totals, axis=0))
    tl.store(shift_ptr + row, tl.sum(shifts, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.jit
def place(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Tile row and tile column of a program; GROUP tile rows are walked column by column."""
    across = tl.cdiv(N, BLOCK_N)
    first = number // (GROUP * across) * GROUP
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP)
    within = number % (GROUP * across)
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
    GROUP: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift, a BLOCK_M x BLOCK_N tile for each program."""
    down, right = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = down * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = right * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = rows < M
    in_cols = cols < N
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows.to(tl.int64)[:, None] * stride_x + ks[None, :]
    s_tile = scaled_ptr + cols.to(tl.int64)[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(x_tile + start, mask=in_rows[:, None] & (ks[None, :] < left), other=0.0)
        b = tl.load(s_tile + start, mask=in_cols[None, :] & (ks[:, None] < left), other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")

    mean = tl.load(mean_ptr + rows, mask=in_rows, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=in_rows, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=in_cols, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=in_cols, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_tile = y_ptr + rows.to(tl.int64)[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=in_rows[:, None] & in_cols[None, :])


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
    strip = min(triton.next_power_of_2(K), STRIP)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=strip)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=strip
    )
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[tiles](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
