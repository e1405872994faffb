# labs/lab4_production_slice/layer_norm_linear.py | corner | In `linear_kernel`, `x_tile = x_ptr + first_row * stride_x + (down[:, None] * stride_x + ks[None, :])`: only the first row of the tile is int64, `down[:, None] * stride_x` is computed in int32 and wraps. It must use int64 rows, as `rows[:, None] * stride_x`. Shows only where rows of x lie so far apart that a row inside a tile begins beyond 2^31 elements from the first row of the tile.
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
    *[tile(128, 256, 64, stages=stages, warps=8) for stages in (3, 4)],
    tile(128, 128, 64, stages=4, warps=8),
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
    """The first n_rows programs have a row of x each, the n_outs behind them a row of the weight.

    of_rows is (2, n_rows) fp32: mean and rstd; of_outs is (2, n_outs) fp32: total and shift.
    """
    program = tl.program_id(axis=0)
    if program < n_rows:
        row = program.to(tl.int64)
        mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
        tl.store(of_rows_ptr + row, mean)
        tl.store(of_rows_ptr + n_rows + row, rstd)
    else:
        out = (program - n_rows).to(tl.int64)
        weight_row = weight_ptr + out * stride_weight
        scaled_row = scaled_ptr + out * N_COLS
        total = 0.0
        shift = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            w = load(weight_row, cols, N_COLS)
            s = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
            tl.store(scaled_row + cols, s, mask=cols < N_COLS)
            total += tl.sum(s.to(tl.float32), axis=0)
            shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
        tl.store(of_outs_ptr + out, total)
        tl.store(of_outs_ptr + n_outs + out, shift + tl.load(bias_ptr + out).to(tl.float32))


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
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile.

    Whole steps along K need no mask of K; what is left of K is one step more.
    """
    first_row = tl.program_id(axis=1).to(tl.int64) * BLOCK_M
    down = tl.arange(0, BLOCK_M)
    ks = tl.arange(0, BLOCK_K)
    rows = first_row + down
    cols = tl.program_id(axis=0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_exists, col_exists = (rows < M)[:, None], (cols < N)[None, :]

    x_tile = x_ptr + first_row * stride_x + (down[:, None] * stride_x + ks[None, :])
    s_tile = scaled_ptr + cols[None, :] * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K // BLOCK_K * BLOCK_K
    for k in range(0, whole, BLOCK_K):
        x = tl.load(x_tile + k, mask=row_exists, other=0.0)
        s = tl.load(s_tile + k, mask=col_exists, other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
    if whole < K:
        left = ks < K - whole
        x = tl.load(x_tile + whole, mask=row_exists & left[None, :], other=0.0)
        s = tl.load(s_tile + whole, mask=col_exists & left[:, None], other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")

    mean = tl.load(of_rows_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(of_rows_ptr + M + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(of_outs_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(of_outs_ptr + N + cols, mask=cols < N, other=0.0)[None, :]
    y = (product - mean * total) * rstd + shift
    y_tile = y_ptr + rows[:, None] * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=row_exists & col_exists)


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
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, of_rows, of_outs, M, N, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, of_rows, of_outs, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
