# labs/lab4_production_slice/layer_norm_linear.py | error | `length` returns `min(most, 16 * triton.cdiv(size, 16))`, which `tile_of` uses for BLOCK_K: for fp16 and bf16 with 33 to 48 columns it is 48, and `tl.arange(0, BLOCK_K)` in `linear_kernel` does not compile, because a range has to be a power of two. It should be a power of two, such as `min(most, max(16, triton.next_power_of_2(size)))`. `layer_norm_linear_forward` fails for 48 columns in 16 bits, and all else is right.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

BAND = tl.constexpr(8)  # rows of tiles that are computed together, so that they share what L2 holds


def length(size, most):
    """Return the length of a tile along a side of this size: tensor cores take 16 numbers at a time."""
    return min(most, 16 * triton.cdiv(size, 16))


def tile_of(K, dtype):
    """Return sizes and options for a launch of linear_kernel."""
    if dtype == torch.float32:  # a large tile would be unrolled into thousands of instructions
        return {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": length(K, 32), "num_stages": 2, "num_warps": 4}
    return {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": length(K, 64), "num_stages": 4, "num_warps": 8}


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
    """Row j of scaled is gamma * weight[j], rounded to its dtype; program j has row j.

    total[j] is the sum of that row, and shift[j] the sum of beta * weight[j], plus bias[j]; both are fp32.
    """
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


@triton.jit
def place(program, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The tile of a program: BAND rows of tiles, column by column, then the next BAND rows."""
    across = tl.cdiv(N, BLOCK_N)
    band = program // (BAND * across)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - band * BAND, BAND)
    inside = program % (BAND * across)
    return band * BAND + inside % height, inside // height


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

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    tile_m, tile_n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    steps = tl.arange(0, BLOCK_K)
    left = x_ptr + rows * stride_x + steps[None, :]
    right = scaled_ptr + cols * K + steps[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        exists = start + steps < K
        a = tl.load(left + start, mask=(rows < M) & exists[None, :], other=0.0)
        b = tl.load(right + start, mask=(cols < N) & exists[:, None], other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")

    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


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
    of_a_row = {"N_COLS": K, "BLOCK": block_of(K)}
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **of_a_row)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **of_a_row
    )
    tile = tile_of(K, x.dtype)
    grid = (triton.cdiv(M, tile["BLOCK_M"]) * triton.cdiv(N, tile["BLOCK_N"]),)
    launch = on(linear_kernel, x)[grid]
    launch(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0), **tile)
    return out
