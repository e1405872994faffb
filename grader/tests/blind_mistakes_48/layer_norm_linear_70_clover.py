# labs/lab4_production_slice/layer_norm_linear.py | right | A single `prepare_kernel` whose first programs scale the rows of the weight and whose others compute mean and rstd of the rows of x; the product in a one-dimensional grid in grouped order, with pointers that move on, rows and columns past the end that repeat row 0 instead of a mask, and the mask along K alone.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 64, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def scale_row(weight_row, gamma_ptr, beta_ptr, scaled_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store gamma times a row of the weight, rounded; return its sum and the sum of beta times the row."""
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_row, cols, N_COLS)
        scaled = (load(gamma_ptr, cols, N_COLS) * weight).to(scaled_row.dtype.element_ty)
        store(scaled_row, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * weight, axis=0)
    return total, shift


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    of_rows_ptr,
    of_outs_ptr,
    n_rows,
    n_outs,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """All that the product needs, in one launch: the first n_outs programs scale the weight, the others take x.

    of_outs is (2, n_outs): total and shift. of_rows is (2, n_rows): mean and rstd. Both are fp32.
    """
    program = tl.program_id(axis=0)
    if program < n_outs:
        out = tl.cast(program, tl.int64)
        weight_row = weight_ptr + out * stride_weight
        total, shift = scale_row(weight_row, gamma_ptr, beta_ptr, scaled_ptr + out * N_COLS, N_COLS, BLOCK)
        tl.store(of_outs_ptr + out, total)
        tl.store(of_outs_ptr + n_outs + out, shift + tl.load(bias_ptr + out).to(tl.float32))
    else:
        row = tl.cast(program - n_outs, tl.int64)
        mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
        tl.store(of_rows_ptr + row, mean)
        tl.store(of_rows_ptr + n_rows + row, rstd)


@triton.jit
def place(number, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Row and column of a tile, where GROUP_M rows of tiles are walked column by column."""
    in_group = GROUP_M * tiles_n
    first = number // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = number % in_group
    return first + within % height, within // height


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    of_rows_ptr,
    of_outs_ptr,
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program i computes tile i of the grouped order."""
    tile_m, tile_n = place(tl.program_id(axis=0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = tl.cast(tile_m, tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.cast(tile_n, tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    # Rows and columns past the end repeat one that exists; what comes of them is not stored.
    rows_read = tl.where(rows < M, rows, 0)
    cols_read = tl.where(cols < N, cols, 0)
    x_tile = x_ptr + rows_read[:, None] * stride_x + ks[None, :]
    scaled_tile = scaled_ptr + cols_read[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(x_tile, mask=ks[None, :] < K - k, other=0.0)
        b = tl.load(scaled_tile, mask=ks[:, None] < K - k, other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
        x_tile += BLOCK_K
        scaled_tile += BLOCK_K
    mean = tl.load(of_rows_ptr + rows_read)[:, None]
    rstd = tl.load(of_rows_ptr + M + rows_read)[:, None]
    total = tl.load(of_outs_ptr + cols_read)[None, :]
    shift = tl.load(of_outs_ptr + N + cols_read)[None, :]
    y = rstd * (product - mean * total) + shift
    inside = (rows < M)[:, None] & (cols < N)[None, :]
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
    of_rows = torch.empty((2, M), device=x.device, dtype=torch.float32)
    of_outs = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(N + M,)](
        x, weight, gamma, beta, bias, scaled, of_rows, of_outs, M, N, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](x, scaled, of_rows, of_outs, out, M, N, K, x.stride(0), out.stride(0))
    return out
