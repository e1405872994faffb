# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `scale_row`, `shift += tl.sum(load(beta_ptr, cols, N_COLS) * row, axis=0)` uses `row` after `row *= gamma` (and rounding); it should be beta times the unscaled row of the weight. The shift of each output, and so y, is wrong in all cases where gamma is not 1 and beta is not 0.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

GROUP = tl.constexpr(8)  # rows of tiles that are computed together, so that x and scaled stay in L2


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=2, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def scale_row(
    weight_row, gamma_ptr, beta_ptr, scaled_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Store a row of the weight times gamma, and return its sum and the row's product with beta."""
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        row = load(weight_row, cols, N_COLS)
        row *= load(gamma_ptr, cols, N_COLS)
        row = row.to(scaled_row.dtype.element_ty).to(tl.float32)
        store(scaled_row, cols, N_COLS, row)
        total += tl.sum(row, axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * row, axis=0)
    return total, shift


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    mean_ptr,
    rstd_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    n_rows,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first n_rows programs have a row of x each, and store its mean and rstd; the others a row of the weight.

    For row j of the weight there are row j of scaled, element j of total, and element j of shift with the bias.
    """
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_rows:
        mean, rstd = mean_and_rstd(x_ptr + program * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + program, mean)
        tl.store(rstd_ptr + program, rstd)
    else:
        j = program - n_rows
        total, shift = scale_row(
            weight_ptr + j * stride_weight, gamma_ptr, beta_ptr, scaled_ptr + j * N_COLS, N_COLS, BLOCK
        )
        tl.store(total_ptr + j, total)
        tl.store(shift_ptr + j, shift + tl.load(bias_ptr + j).to(tl.float32))


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
    """y = rstd * (x @ scaled.T - mean * total) + shift, a BLOCK_M x BLOCK_N tile for each program.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). GROUP rows of tiles are taken column by column.
    """
    program = tl.program_id(axis=0)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_m = program // (tiles_n * GROUP) * GROUP
    height = tl.minimum(tiles_m - first_m, GROUP)
    within = program % (tiles_n * GROUP)
    rows = (first_m + within % height) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = within // height * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    has_row = rows < M
    has_col = cols < N
    x_tile = x_ptr + rows[:, None] * stride_x + ks[None, :]
    scaled_tile = scaled_ptr + cols[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        has_k = ks < K - start
        x = tl.load(x_tile + start, mask=has_row[:, None] & has_k[None, :], other=0.0)
        scaled = tl.load(scaled_tile + start, mask=has_k[:, None] & has_col[None, :], other=0.0)
        product = tl.dot(x, scaled, product, input_precision="ieee")
    mean = tl.load(mean_ptr + rows, mask=has_row, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=has_row, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=has_col, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=has_col, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=has_row[:, None] & has_col[None, :])


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
    prepare = on(prepare_kernel, x)[(M + N,)]
    prepare(
        x,
        mean,
        rstd,
        weight,
        gamma,
        beta,
        bias,
        scaled,
        total,
        shift,
        M,
        x.stride(0),
        weight.stride(0),
        eps,
        N_COLS=K,
        BLOCK=block_of(K),
    )
    product = on(linear_kernel, x)[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)]
    product(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
