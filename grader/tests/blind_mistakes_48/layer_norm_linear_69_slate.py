# labs/lab4_production_slice/layer_norm_linear.py | error | In `linear_kernel` both loads, as `tl.load(x_tile, boundary_check=(0, 1), other=0.0)`, pass `other` with a block pointer, which Triton does not permit (mask and other belong to blocks of pointers). It should be `padding_option="zero"`. The kernel does not compile, in all cases.
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


TILES = [tile(128, 256, 64, stages=3, warps=8), tile(128, 128, 64, stages=3, warps=8)]
TILES += [tile(64, 64, 32, stages=2, warps=4)]


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
    """Row j of scaled is gamma * weight[j], rounded to its dtype, with its two sums; program j has row j."""
    row = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr + row * stride_weight, cols, N_COLS)
        scaled = (weight * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(weight * load(beta_ptr, cols, N_COLS), axis=0)
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; a program computes a BLOCK_M x BLOCK_N tile.

    The tiles of x, of scaled, read as its transpose, and of y are block pointers, and move along K.
    """
    tiles_n = tl.cdiv(N, BLOCK_N)
    first_row = tl.program_id(axis=0) // tiles_n * BLOCK_M
    first_col = tl.program_id(axis=0) % tiles_n * BLOCK_N
    x_tile = tl.make_block_ptr(
        x_ptr,
        shape=(M, K),
        strides=(stride_x, 1),
        offsets=(first_row, 0),
        block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )
    scaled_tile = tl.make_block_ptr(
        scaled_ptr,
        shape=(K, N),
        strides=(1, K),
        offsets=(0, first_col),
        block_shape=(BLOCK_K, BLOCK_N),
        order=(0, 1),
    )
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_tile, boundary_check=(0, 1), other=0.0)
        scaled = tl.load(scaled_tile, boundary_check=(0, 1), other=0.0)
        product = tl.dot(x, scaled, product, input_precision="ieee")
        x_tile = tl.advance(x_tile, (0, BLOCK_K))
        scaled_tile = tl.advance(scaled_tile, (BLOCK_K, 0))
    rows = first_row + tl.arange(0, BLOCK_M)
    cols = first_col + tl.arange(0, BLOCK_N)
    mean, rstd = load(mean_ptr, rows, M)[:, None], load(rstd_ptr, rows, M)[:, None]
    total, shift = load(total_ptr, cols, N)[None, :], load(shift_ptr, cols, N)[None, :]
    y = rstd * (product - mean * total) + shift
    y_tile = tl.make_block_ptr(
        y_ptr,
        shape=(M, N),
        strides=(stride_y, 1),
        offsets=(first_row, first_col),
        block_shape=(BLOCK_M, BLOCK_N),
        order=(1, 0),
    )
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    sizes = {"N_COLS": K, "BLOCK": block_of(K)}
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **sizes)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **sizes)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
