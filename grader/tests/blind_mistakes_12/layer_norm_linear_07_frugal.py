# labs/lab4_production_slice/layer_norm_linear.py | contract | gamma * weight is stored over the weight itself, an input, so the weight is changed by the call; it must go to a new tensor; the numbers of the call are right, shows wherever gamma is not 1
"""LayerNorm and the Linear layer behind it, with one matrix product and little scratch memory."""

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
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, stats_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean (row 0 of stats) and rstd (row 1) of row i of x, in fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)


# One config, nothing to tune here.
@triton.autotune(configs=[triton.Config({}, num_warps=8)], key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    sums_ptr,
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Scale row j by gamma; total (row 0 of sums) and shift (row 1) of output j."""
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        shift += w * load(beta_ptr, cols, N_COLS)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(weight_ptr.dtype.element_ty)
        total += s.to(tl.float32)
        store(weight_row, cols, N_COLS, s)
    bias = tl.load(bias_ptr + row).to(tl.float32)
    tl.store(sums_ptr + row, tl.sum(total, axis=0))
    tl.store(sums_ptr + n_outs + row, tl.sum(shift, axis=0) + bias)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    stats_ptr,
    sums_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_x,
    stride_scaled,
    stride_y,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    row_mask = rows < M
    col_mask = cols < N
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        across = start + tl.arange(0, BLOCK_K)[None, :]
        down = start + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(x_ptr + rows * stride_x + across, mask=row_mask & (across < K), other=0.0)
        b = tl.load(scaled_ptr + cols * stride_scaled + down, mask=col_mask & (down < K), other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
    mean = tl.load(stats_ptr + rows, mask=row_mask, other=0.0)
    rstd = tl.load(stats_ptr + M + rows, mask=row_mask, other=0.0)
    total = tl.load(sums_ptr + cols, mask=col_mask, other=0.0)
    shift = tl.load(sums_ptr + N + cols, mask=col_mask, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=row_mask & col_mask)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    stats = torch.empty((2, M), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, stats, M, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, sums, N, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](
        x, weight, stats, sums, out, M, N, K, x.stride(0), weight.stride(0), out.stride(0)
    )
    return out
