# labs/lab4_production_slice/layer_norm_linear.py | two mistakes | (1) both row kernels are launched with `step = x.stride(0)`, which scale_kernel uses for the rows of the weight; it needs weight.stride(0). Shows where the weight is padded and x is not, or the other way round. (2) shift adds up `s * beta` (in scale_kernel), which has gamma in it; it must be the sum of the weight times beta. Shows wherever gamma is not 1 and beta is not 0.
"""LayerNorm + Linear, with block pointers and persistent programs."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

PROGRAMS = 264

TILES = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The last one where the operands are fp32."""
    fp32 = named_args["x_ptr"].dtype == torch.float32
    return configs[-1:] if fp32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, step, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of a row of x."""
    row = tl.program_id(0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * step, eps, N_COLS, BLOCK)
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
    step,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A row of gamma * weight, and two sums."""
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        s = load(weight_ptr + row * step, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        s = s.to(scaled_ptr.dtype.element_ty)
        tl.store(scaled_ptr + row * N_COLS + cols, s, mask=cols < N_COLS)
        s = s.to(tl.float32)
        total += tl.sum(s, axis=0)
        shift += tl.sum(s * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift + tl.load(bias_ptr + row).to(tl.float32))


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
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Each program takes every num_programs-th tile."""
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        m = tile // across * BM
        n = tile % across * BN
        x_block = tl.make_block_ptr(
            x_ptr, shape=(M, K), strides=(stride_x, 1), offsets=(m, 0), block_shape=(BM, BK), order=(1, 0)
        )
        s_block = tl.make_block_ptr(
            scaled_ptr, shape=(K, N), strides=(1, K), offsets=(0, n), block_shape=(BK, BN), order=(0, 1)
        )
        product = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(0, K, BK):
            a = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
            b = tl.load(s_block, boundary_check=(0, 1), padding_option="zero")
            product = tl.dot(a, b, product, input_precision="ieee")
            x_block = tl.advance(x_block, (0, BK))
            s_block = tl.advance(s_block, (BK, 0))
        rows = m + tl.arange(0, BM)
        cols = n + tl.arange(0, BN)
        mean = load(mean_ptr, rows, M)[:, None]
        rstd = load(rstd_ptr, rows, M)[:, None]
        total = load(total_ptr, cols, N)[None, :]
        shift = load(shift_ptr, cols, N)[None, :]
        y = rstd * (product - mean * total) + shift
        y_block = tl.make_block_ptr(
            y_ptr, shape=(M, N), strides=(stride_y, 1), offsets=(m, n), block_shape=(BM, BN), order=(1, 0)
        )
        tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias in one product."""
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    step = x.stride(0)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, step, eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, step, N_COLS=K, BLOCK=block)
    on(linear_kernel, x)[lambda meta: (min(PROGRAMS, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)](
        x, scaled, mean, rstd, total, shift, out, M, N, K, step, out.stride(0)
    )
    return out
