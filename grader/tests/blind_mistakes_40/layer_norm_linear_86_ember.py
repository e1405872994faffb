# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | Both in `scale_kernel`. (1) `totals += s` adds gamma * weight before it is rounded to the dtype; it should add `s.to(scaled_ptr.dtype.element_ty).to(tl.float32)`: digits are lost in fp16 and bf16 where the rows of x are far from 0. (2) `weight_rows = weight_ptr + outs[:, None] * stride_weight` multiplies int32 numbers; it should be `outs[:, None].to(tl.int64) * stride_weight`: wrong addresses where the rows of the weight lie so far apart that offsets pass 2^31 elements.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, on


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(256, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
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
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, N, K, stride_weight,
    OUTS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """scaled = gamma * weight in the dtype of the weight, with its sums; program j has OUTS rows of the weight.

    total is the sum over a row of scaled, shift the sum of beta * weight, plus bias; both are fp32. The tiles
    are added up element by element, and each is reduced once, at the end.
    """
    outs = tl.program_id(axis=0) * OUTS + tl.arange(0, OUTS)
    there = outs < N
    weight_rows = weight_ptr + outs[:, None] * stride_weight
    scaled_rows = scaled_ptr + outs[:, None].to(tl.int64) * K
    totals = tl.zeros((OUTS, COLS), dtype=tl.float32)
    shifts = tl.zeros((OUTS, COLS), dtype=tl.float32)
    for start in range(0, K, COLS):
        cols = start + tl.arange(0, COLS)
        exists = cols < K
        inside = there[:, None] & exists[None, :]
        gamma = tl.load(gamma_ptr + cols, mask=exists, other=0.0).to(tl.float32)
        beta = tl.load(beta_ptr + cols, mask=exists, other=0.0).to(tl.float32)
        w = tl.load(weight_rows + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        s = gamma[None, :] * w
        totals += s
        shifts += beta[None, :] * w
        tl.store(scaled_rows + cols[None, :], s.to(scaled_ptr.dtype.element_ty), mask=inside)
    bias = tl.load(bias_ptr + outs, mask=there, other=0.0).to(tl.float32)
    tl.store(total_ptr + outs, tl.sum(totals, axis=1), mask=there)
    tl.store(shift_ptr + outs, tl.sum(shifts, axis=1) + bias, mask=there)


@triton.jit
def place(number, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of tiles of the tile with this number: GROUP rows of tiles, column by column."""
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = number // (GROUP * across) * GROUP
    height = tl.minimum(down - first, GROUP)
    inner = number % (GROUP * across)
    return first + inner % height, inner // height


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift, one tile for each program."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP)
    rows = (m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    x_rows = x_ptr + rows[:, None] * stride_x
    s_rows = scaled_ptr + cols[:, None] * K
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)[None, :]
        x = tl.load(x_rows + ks, mask=(rows[:, None] < M) & (ks < K), other=0.0)
        s = tl.load(s_rows + ks, mask=(cols[:, None] < N) & (ks < K), other=0.0)
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = rstd[:, None] * (product - mean[:, None] * total[None, :]) + shift[None, :]
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(y_ptr + rows[:, None] * stride_y + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


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
    on(scale_kernel, x)[(triton.cdiv(N, 4),)](
        weight, gamma, beta, bias, scaled, total, shift, N, K, weight.stride(0), OUTS=4, COLS=512
    )
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
