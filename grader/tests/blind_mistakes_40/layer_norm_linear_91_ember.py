# labs/lab4_production_slice/layer_norm_linear.py | right | One launch of M + N programs does both the folding of the weight and the statistics of x, in two helper functions behind an `if` on the program's number. The product has whole steps along K without any mask, rows and columns past the end are taken from the first ones, and a rest of K is one masked step after the loop.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import block_of, load, on, store

PREPARE = [triton.Config({}, num_warps=warps) for warps in (8, 16)]
FOLD = tl.constexpr(2048)  # columns of the weight that a program takes at a time


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 64, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def measure(x_ptr, stats_ptr, row, M, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Row `row` of x: its mean and 1 / sqrt(variance + eps), to the two rows of stats."""
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + M + row, rstd)


@triton.jit
def fold(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, row, N, stride_weight,
    N_COLS: tl.constexpr,
):  # fmt: skip
    """Row `row` of the weight: times gamma, rounded, and its two sums, lane by lane and then of all lanes."""
    weight_row = weight_ptr + row * stride_weight
    scaled_row = scaled_ptr + row * N_COLS
    totals = tl.zeros((FOLD,), tl.float32)
    shifts = tl.zeros((FOLD,), tl.float32)
    for start in range(0, N_COLS, FOLD):
        cols = start + tl.arange(0, FOLD)
        w = load(weight_row, cols, N_COLS)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty)
        store(scaled_row, cols, N_COLS, s)
        totals += s.to(tl.float32)
        shifts += load(beta_ptr, cols, N_COLS) * w
    tl.store(sums_ptr + row, tl.sum(totals, axis=0))
    tl.store(sums_ptr + N + row, tl.sum(shifts, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


@triton.autotune(configs=PREPARE, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, stats_ptr, sums_ptr,
    M, N, stride_x, stride_weight, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All that the product needs, in one launch: the first N programs have a row of the weight, the others
    one of x. stats is (2, M) and sums (2, N), both fp32.
    """
    program = tl.program_id(axis=0).to(tl.int64)
    if program < N:
        fold(
            weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, sums_ptr, program, N, stride_weight, N_COLS
        )
    else:
        measure(x_ptr, stats_ptr, program - N, M, stride_x, eps, N_COLS, BLOCK)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, stats_ptr, sums_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift.

    The tiles of all columns for the same rows of x follow one another. The last step along K may be a short
    one: it has a mask, and the whole steps before it have none. Rows and columns past the end are taken from
    the first ones, whose sums are not stored.
    """
    across = tl.cdiv(N, BLOCK_N)
    number = tl.program_id(axis=0)
    rows = (number // across).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (number % across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + tl.where(rows < M, rows, 0)[:, None] * stride_x + ks[None, :]
    s_tile = scaled_ptr + tl.where(cols < N, cols, 0)[None, :] * K + ks[:, None]

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K // BLOCK_K):
        sums = tl.dot(tl.load(x_tile), tl.load(s_tile), sums, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    rest = K % BLOCK_K
    if rest > 0:
        x = tl.load(x_tile, mask=ks[None, :] < rest, other=0.0)
        s = tl.load(s_tile, mask=ks[:, None] < rest, other=0.0)
        sums = tl.dot(x, s, sums, input_precision="ieee")

    mean = load(stats_ptr, rows, M)
    rstd = load(stats_ptr + M, rows, M)
    total = load(sums_ptr, cols, N)
    shift = load(sums_ptr + N, cols, N)
    y = rstd[:, None] * (sums - mean[:, None] * total[None, :]) + shift[None, :]
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    stats = torch.empty((2, M), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, stats, sums, M, N, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](x, scaled, stats, sums, out, M, N, K, x.stride(0), out.stride(0))
    return out
