# labs/lab4_production_slice/layer_norm_linear.py | right | Skeleton layer_norm_linear.py. Unusual: one launch prepares the rows of x and those of the weight (a branch on the number of the program), the sum of a tile starts at -mean * total instead of 0, the last step along K is outside of the loop, the tile of the weight is turned by `tl.trans`, and the order of the tiles comes from `tl.swizzle2d`.
"""LayerNorm and the Linear layer behind it, with one matrix product.

Two launches: one prepares all rows, those of x and those of the weight, the other has the product. The sum of a
tile starts at -mean * total instead of 0, so that only rstd and shift are left to be applied behind the loop.
"""

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
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(128, 64, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=2, warps=4),
]
TALL = tl.constexpr(8)  # tiles one above the other, whose programs start one after the other


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
    mean_ptr,
    rstd_ptr,
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
    """The first n_rows programs have the rows of x: mean and rstd. The others have those of the weight.

    Row j of scaled is gamma * weight[j], rounded to its dtype; total[j] is the sum of that row, and shift[j] the
    sum of beta * weight[j], plus bias[j].
    """
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_rows:
        mean, rstd = mean_and_rstd(x_ptr + program * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + program, mean)
        tl.store(rstd_ptr + program, rstd)
    else:
        row = program - n_rows
        weight_row = weight_ptr + row * stride_weight
        scaled_row = scaled_ptr + row * N_COLS
        total = 0.0
        shift = tl.load(bias_ptr + row).to(tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            w = load(weight_row, cols, N_COLS)
            rounded = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
            store(scaled_row, cols, N_COLS, rounded)
            total += tl.sum(rounded.to(tl.float32), axis=0)
            shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
        tl.store(total_ptr + row, total)
        tl.store(shift_ptr + row, shift)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; each program computes a BLOCK_M x BLOCK_N tile.

    Whole steps along K come first, without a mask for it; what is left of K is one step more.
    """
    tile_row, tile_col = tl.swizzle2d(
        tl.program_id(axis=1), tl.program_id(axis=0), tl.num_programs(axis=1), tl.num_programs(axis=0), TALL
    )
    rows = tile_row.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    outs = tile_col.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    has_row = rows < M
    has_out = outs < N
    ks = tl.arange(0, BLOCK_K)[None, :]
    x_tile = x_ptr + rows[:, None] * stride_x + ks
    s_tile = scaled_ptr + outs[:, None] * K + ks
    mean = tl.load(mean_ptr + rows, mask=has_row, other=0.0)
    total = tl.load(total_ptr + outs, mask=has_out, other=0.0)
    sums = -mean[:, None] * total[None, :]
    whole = K // BLOCK_K * BLOCK_K
    for k in range(0, whole, BLOCK_K):
        x = tl.load(x_tile + k, mask=has_row[:, None], other=0.0)
        s = tl.load(s_tile + k, mask=has_out[:, None], other=0.0)
        sums = tl.dot(x, tl.trans(s), sums, input_precision="ieee")
    if whole < K:
        left = ks < K - whole
        x = tl.load(x_tile + whole, mask=has_row[:, None] & left, other=0.0)
        s = tl.load(s_tile + whole, mask=has_out[:, None] & left, other=0.0)
        sums = tl.dot(x, tl.trans(s), sums, input_precision="ieee")
    rstd = tl.load(rstd_ptr + rows, mask=has_row, other=0.0)
    shift = tl.load(shift_ptr + outs, mask=has_out, other=0.0)
    y = sums * rstd[:, None] + shift[None, :]
    y_tile = y_ptr + rows[:, None] * stride_y + outs[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=has_row[:, None] & has_out[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x,
        weight,
        gamma,
        beta,
        bias,
        mean,
        rstd,
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
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
