# labs/lab4_production_slice/layer_norm_linear.py | right | One launch for the statistics of x and the scaled weight (programs below n_rows have rows of x, the others rows of the weight); the sum of a tile begins with -mean * total in place of a correction behind the product; grouped order of tiles on a grid of one axis; no mask along K where K is a multiple of 64.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def scale_row(
    weight_row, gamma_ptr, beta_ptr, scaled_row, first_shift, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Store gamma times a row of the weight, rounded; return the sum of it, and the shift of its output."""
    total = 0.0
    shift = first_shift
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_row, cols, N_COLS)
        scaled = (weight * load(gamma_ptr, cols, N_COLS)).to(scaled_row.dtype.element_ty)
        store(scaled_row, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(weight * load(beta_ptr, cols, N_COLS), axis=0)
    return total, shift


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr,
    n_rows, stride_x, stride_weight, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first n_rows programs have a row of x each, for its mean and rstd; the others a row of the weight."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_rows:
        mean, rstd = mean_and_rstd(x_ptr + program * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + program, mean)
        tl.store(rstd_ptr + program, rstd)
    else:
        row = program - n_rows
        bias = tl.load(bias_ptr + row).to(tl.float32)
        total, shift = scale_row(
            weight_ptr + row * stride_weight, gamma_ptr, beta_ptr, scaled_ptr + row * N_COLS, bias,
            N_COLS, BLOCK,
        )  # fmt: skip
        tl.store(total_ptr + row, total)
        tl.store(shift_ptr + row, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    WHOLE: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift, one tile a program, GROUP rows of tiles at a time.

    The sum of a tile begins with -mean * total. WHOLE says that K is a multiple of each BLOCK_K.
    """
    number = tl.program_id(axis=0)
    in_group = tl.cdiv(N, BLOCK_N) * GROUP
    top = number // in_group * GROUP
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP)
    within = number % in_group
    rows = (top + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows, in_cols = rows < M, cols < N
    mean = tl.load(mean_ptr + rows, mask=in_rows, other=0.0)
    total = tl.load(total_ptr + cols, mask=in_cols, other=0.0)
    acc = -mean[:, None] * total[None, :]
    ks = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + rows[:, None].to(tl.int64) * stride_x + ks[None, :]
    s_tile = scaled_ptr + cols[None, :].to(tl.int64) * K + ks[:, None]
    for k in range(0, K, BLOCK_K):
        if WHOLE:
            a = tl.load(x_tile, mask=in_rows[:, None], other=0.0)
            b = tl.load(s_tile, mask=in_cols[None, :], other=0.0)
        else:
            a = tl.load(x_tile, mask=in_rows[:, None] & (ks[None, :] < K - k), other=0.0)
            b = tl.load(s_tile, mask=in_cols[None, :] & (ks[:, None] < K - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K
    rstd = tl.load(rstd_ptr + rows, mask=in_rows, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=in_cols, other=0.0)
    y = acc * rstd[:, None] + shift[None, :]
    y_tile = y_ptr + rows[:, None].to(tl.int64) * stride_y + cols[None, :]
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
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, mean, rstd, total, shift, M, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=min(block_of(K), 4096),
    )  # fmt: skip
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0),
        WHOLE=K % 64 == 0, GROUP=8,
    )  # fmt: skip
    return out
