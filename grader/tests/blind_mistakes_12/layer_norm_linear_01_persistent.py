# labs/lab4_production_slice/layer_norm_linear.py | right | unusual: one preparing kernel whose first M programs do the rows of x and whose other N programs do the rows of the weight; the product is persistent, 1D grid with a grouped order of tiles, several tiles for a program
"""LayerNorm and the Linear layer behind it, with one matrix product.

Two launches: `prepare_kernel` for everything that belongs to one row of x or to one row of the weight, and
`linear_kernel`, whose programs stay alive and take tile after tile.
"""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

PROGRAMS = 264  # of linear_kernel at most, two for each SM of an H100


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
    weight_row, gamma_ptr, beta_ptr, scaled_row, bias, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Store gamma * weight, rounded; return the sum of what was stored, and bias + sum of beta * weight."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_row, cols, N_COLS)
        scaled = (weight * load(gamma_ptr, cols, N_COLS)).to(scaled_row.dtype.element_ty)
        tl.store(scaled_row + cols, scaled, mask=cols < N_COLS)
        total += scaled.to(tl.float32)
        shift += weight * load(beta_ptr, cols, N_COLS)
    return tl.sum(total, axis=0), tl.sum(shift, axis=0) + bias


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    gamma_ptr,
    beta_ptr,
    weight_ptr,
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
    """Programs 0 to n_rows - 1: mean and rstd of a row of x. The programs behind: a row of the weight."""
    pid = tl.program_id(axis=0)
    if pid < n_rows:
        i = pid.to(tl.int64)
        mean, rstd = mean_and_rstd(x_ptr + i * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + i, mean)
        tl.store(rstd_ptr + i, rstd)
    else:
        j = (pid - n_rows).to(tl.int64)
        bias = tl.load(bias_ptr + j).to(tl.float32)
        total, shift = scale_row(
            weight_ptr + j * stride_weight, gamma_ptr, beta_ptr, scaled_ptr + j * N_COLS, bias, N_COLS, BLOCK
        )
        tl.store(total_ptr + j, total)
        tl.store(shift_ptr + j, shift)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program p has the tiles p, p + programs, ..."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for number in range(tl.program_id(axis=0), tiles_m * tiles_n, tl.num_programs(axis=0)):
        # GROUP tiles below one another, then the next column: they share the tiles of scaled in L2
        first = number // (tiles_n * GROUP) * GROUP
        height = tl.minimum(tiles_m - first, GROUP)
        rest = number % (tiles_n * GROUP)
        tile_m = first + rest % height
        tile_n = rest // height
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
        cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)

        product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            k_row = start + tl.arange(0, BLOCK_K)[None, :]
            k_col = start + tl.arange(0, BLOCK_K)[:, None]
            a = tl.load(x_ptr + rows * stride_x + k_row, mask=(rows < M) & (k_row < K), other=0.0)
            b = tl.load(scaled_ptr + cols * K + k_col, mask=(cols < N) & (k_col < K), other=0.0)
            product = tl.dot(a, b, product, input_precision="ieee")

        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
        shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
        y = (product - mean * total) * rstd + shift
        tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)

    on(prepare_kernel, x)[(M + N,)](
        x,
        gamma,
        beta,
        weight,
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
    grid = lambda meta: (  # noqa: E731
        min(PROGRAMS, triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])),
    )
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0), GROUP=8
    )
    return out
