# labs/lab4_production_slice/layer_norm_linear.py | right | right
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
    tile(m, n, k, stages=stages, warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (128, 256, 64, 4, 8),
        (128, 128, 64, 3, 8),
        (64, 64, 32, 3, 4),
    )
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
def rounded_to(values, like_ptr):
    """Values as they come back from memory of this dtype, in fp32."""
    return values.to(like_ptr.dtype.element_ty).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
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
    row = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + row * stride_weight, cols, N_COLS)
        s = rounded_to(w * load(gamma_ptr, cols, N_COLS), scaled_ptr)
        total += tl.sum(s, axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, s)
    shift += tl.load(bias_ptr + row).to(tl.float32)
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile.

    The sum starts at -mean * total, so that the norm costs one multiplication and one addition behind the
    product. Rows and columns past the end compute the last one again, and are not stored.
    """
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    i = tl.minimum(rows, M - 1)
    j = tl.minimum(cols, N - 1)
    x_rows = x_ptr + i * stride_x
    s_rows = scaled_ptr + j * K

    acc = -tl.load(mean_ptr + i) * tl.load(total_ptr + j)
    whole = K - K % BLOCK_K
    for start in range(0, whole, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        acc = tl.dot(tl.load(x_rows + k[None, :]), tl.load(s_rows + k[:, None]), acc, input_precision="ieee")
    if whole < K:
        last = whole + tl.arange(0, BLOCK_K)
        x_end = tl.load(x_rows + last[None, :], mask=last[None, :] < K, other=0.0)
        s_end = tl.load(s_rows + last[:, None], mask=last[:, None] < K, other=0.0)
        acc = tl.dot(x_end, s_end, acc, input_precision="ieee")

    y = acc * tl.load(rstd_ptr + i) + tl.load(shift_ptr + j)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.size(0)
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)

    scale = on(scale_kernel, x)[(N,)]
    scale(
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    statistics = on(statistics_kernel, x)[(M,)]
    statistics(x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    linear = on(linear_kernel, x)[
        lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))
    ]
    linear(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
