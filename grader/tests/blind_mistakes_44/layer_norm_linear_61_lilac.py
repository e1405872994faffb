# labs/lab4_production_slice/layer_norm_linear.py | right | One kernel for the statistics and the scaled weight: the first M programs have rows of x, the other N rows of the weight. The product is persistent (264 programs at most go from tile to tile) in grouped tile order.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

PROGRAMS = 264  # of the product: two for each of the 132 SMs of an H200
GROUP = 8  # tile rows that are computed together


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 32, stages=4, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    mean_ptr,
    rstd_ptr,
    total_ptr,
    shift_ptr,
    n_rows,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first n_rows programs have a row of x each, and store mean and 1 / sqrt(variance + eps) in fp32.

    The others have a row of the weight each: they store gamma times the row, rounded, the sum of what they
    stored, and the sum of beta times the row plus the bias; both sums are fp32.
    """
    program = tl.program_id(axis=0)
    if program < n_rows:
        row = program.to(tl.int64)
        mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + row, mean)
        tl.store(rstd_ptr + row, rstd)
    else:
        output = (program - n_rows).to(tl.int64)
        weight_row = weight_ptr + output * stride_weight
        scaled_row = scaled_ptr + output * N_COLS
        total = 0.0
        shift = tl.load(bias_ptr + output).to(tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            w = load(weight_row, cols, N_COLS)
            rounded = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
            store(scaled_row, cols, N_COLS, rounded)
            total += tl.sum(rounded.to(tl.float32), axis=0)
            shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
        tl.store(total_ptr + output, total)
        tl.store(shift_ptr + output, shift)


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
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program goes from tile to tile.

    The tiles are counted down GROUP tile rows, then one tile to the right, so that programs that run together
    share what they read.
    """
    high, wide = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for number in range(tl.program_id(axis=0), high * wide, tl.num_programs(axis=0)):
        first = number // (GROUP * wide) * GROUP
        height = tl.minimum(high - first, GROUP)
        within = number % (GROUP * wide)
        rows = ((first + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
        cols = ((within // height) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
        row_exists, col_exists = rows < M, cols < N
        product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            ks = k + tl.arange(0, BLOCK_K)
            x = tl.load(
                x_ptr + rows * stride_x + ks[None, :], mask=row_exists & (ks < K)[None, :], other=0.0
            )
            s = tl.load(
                scaled_ptr + cols * K + ks[:, None], mask=col_exists & (ks < K)[:, None], other=0.0
            )
            product = tl.dot(x, s, product, input_precision="ieee")
        mean = tl.load(mean_ptr + rows, mask=row_exists, other=0.0)
        total = tl.load(total_ptr + cols, mask=col_exists, other=0.0)
        centred = product - mean * total
        rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0)
        shift = tl.load(shift_ptr + cols, mask=col_exists, other=0.0)
        y = (centred * rstd + shift).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + rows * stride_y + cols, y, mask=row_exists & col_exists)


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
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, mean, rstd, total, shift, M, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip

    # No more programs than there are tiles: a small result has fewer.
    on(linear_kernel, x)[
        lambda meta: (min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),)
    ](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0), GROUP=GROUP)
    return out
