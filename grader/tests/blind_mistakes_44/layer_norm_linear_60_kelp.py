# labs/lab4_production_slice/layer_norm_linear.py | contract | In `layer_norm_linear_forward`, without `out` the result is allocated by `torch.empty_strided((M, N), (apart, 1), ...)` with rows padded to a multiple of 8 elements; README: without `out` the function allocates new contiguous tensors. The numbers are right, but the result is not contiguous where there are two rows or more and N is no multiple of 8 (as 5 x 127 -> 33 without `out`, and through `layer_norm_linear`).
"""LayerNorm and the Linear layer behind it, with a product whose inner loop needs no mask."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import block_of, load, on, store

LANE_GROUP = 8  # 16-bit numbers that a thread stores at once


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


ROW_CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]
TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(256, 128, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=2, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=ROW_CONFIGS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=ROW_CONFIGS, key=["N_COLS"])
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
    """Row j of scaled is gamma * weight[j], rounded to its dtype; program j has row j.

    total[j] is the sum of that row, and shift[j] the sum of beta * weight[j], plus bias[j]; both are fp32.
    """
    output = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    shift = tl.load(bias_ptr + output).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr + output * stride_weight, cols, N_COLS)
        scaled = (weight * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + output * N_COLS, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(weight * load(beta_ptr, cols, N_COLS), axis=0)
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile.

    Rows and columns past the end stand in for the first ones, which are there, and are not stored. Only the
    last step along K has a mask.
    """
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)
    along = tl.arange(0, BLOCK_K)[None, :]
    x_rows = x_ptr + tl.where(rows < M, rows, 0)[:, None].to(tl.int64) * stride_x
    s_rows = scaled_ptr + tl.where(cols < N, cols, 0)[:, None].to(tl.int64) * K
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    whole = K - K % BLOCK_K
    for k in range(0, whole, BLOCK_K):
        x = tl.load(x_rows + (k + along))
        s = tl.load(s_rows + (k + along))
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
    if whole < K:
        rest = along < K - whole
        x = tl.load(x_rows + (whole + along), mask=rest, other=0.0)
        s = tl.load(s_rows + (whole + along), mask=rest, other=0.0)
        product = tl.dot(x, tl.trans(s), product, input_precision="ieee")
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    y_tile = y_ptr + rows[:, None].to(tl.int64) * stride_y + cols[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        apart = triton.cdiv(N, LANE_GROUP) * LANE_GROUP
        out = torch.empty_strided((M, N), (apart, 1), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=min(block, 8192)
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
