# labs/lab4_production_slice/layer_norm_linear.py | right | right
"""LayerNorm and Linear in two launches: one prepares rows of x and of the weight, one multiplies."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on

BAND = tl.constexpr(8)  # tiles of rows that neighbouring programs share


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 64, 32, stages=2, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def scale_row(w_row, gamma_ptr, beta_ptr, s_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store gamma * w as it is rounded; return the sum of that, and the sum of beta * w."""
    total = 0.0
    shift = 0.0
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(s_row.dtype.element_ty)
        tl.store(s_row + cols, s, mask=cols < N_COLS)
        total += tl.sum(s.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * w, axis=0)
    return total, shift


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr, weight_ptr, gamma_ptr, beta_ptr, bias_ptr,
    scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr,
    M, stride_x, stride_weight, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first M programs have a row of x each, those behind them a row of the weight."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < M:
        mean, rstd = mean_and_rstd(x_ptr + program * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + program, mean)
        tl.store(rstd_ptr + program, rstd)
    else:
        j = program - M
        w_row = weight_ptr + j * stride_weight
        total, shift = scale_row(w_row, gamma_ptr, beta_ptr, scaled_ptr + j * N_COLS, N_COLS, BLOCK)
        tl.store(total_ptr + j, total)
        tl.store(shift_ptr + j, shift + tl.load(bias_ptr + j).to(tl.float32))


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr,
    M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift; tiles are visited in bands of BAND tiles of rows."""
    program = tl.program_id(axis=0)
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    band = program // (across * BAND)
    inner = program % (across * BAND)
    height = tl.minimum(down - band * BAND, BAND)
    tile_m = band * BAND + inner % height
    tile_n = inner // height

    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        ks = step * BLOCK_K + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows * stride_x + ks[None, :], mask=(rows < M) & (ks < K)[None, :], other=0.0)
        s = tl.load(scaled_ptr + cols * K + ks[:, None], mask=(cols < N) & (ks < K)[:, None], other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
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
        x, weight, gamma, beta, bias,
        scaled, mean, rstd, total, shift,
        M, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    on(linear_kernel, x)[grid](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
