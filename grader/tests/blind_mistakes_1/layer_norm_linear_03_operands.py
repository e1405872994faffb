# lab4_production_slice/layer_norm_linear.py | error | in linear_kernel the tile `a` of x is loaded by get(), which converts to fp32, while the tile `b` of scaled stays in its own dtype: tl.dot of fp32 with fp16 (or bf16) operands is refused ("Both operands must be same dtype"); fp32 inputs are right | "all fp32, fp16 or bf16", "zeros in fp32; for each step along K: a tile of x, a tile of s"; raises / does not compile for fp16 and bf16 only
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


TILES = [tile(128, 256, 64, stages=4, warps=8), tile(64, 64, 32, stages=2, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    stats = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, stats[0])
    tl.store(rstd_ptr + row, stats[1])


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
    row = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    shift = 0.0
    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        w = load(weight_ptr + row * stride_weight, cols, N_COLS)
        gamma = load(gamma_ptr, cols, N_COLS)
        beta = load(beta_ptr, cols, N_COLS)
        rounded = (gamma * w).to(scaled_ptr.dtype.element_ty).to(tl.float32)
        total += tl.sum(rounded, axis=0)
        shift += tl.sum(beta * w, axis=0)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, rounded)
    shift += load(bias_ptr, row, row + 1)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def get(pointers, mask):
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


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
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        ka = k + tl.arange(0, BLOCK_K)[None, :]
        kb = k + tl.arange(0, BLOCK_K)[:, None]
        a = get(x_ptr + rows * stride_x + ka, (rows < M) & (ka < K))
        b = tl.load(scaled_ptr + cols * K + kb, mask=(cols < N) & (kb < K), other=0.0)
        product = tl.dot(a, b, acc=product, input_precision="ieee")
    mean = get(mean_ptr + rows, rows < M)
    rstd = get(rstd_ptr + rows, rows < M)
    total = get(total_ptr + cols, cols < N)
    shift = get(shift_ptr + cols, cols < N)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean = torch.empty((M,), device=x.device, dtype=torch.float32)
    rstd = torch.empty_like(mean)
    total = torch.empty((N,), device=x.device, dtype=torch.float32)
    shift = torch.empty_like(total)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block
    )
    on(linear_kernel, x)[lambda c: (triton.cdiv(N, c["BLOCK_N"]), triton.cdiv(M, c["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
