# labs/lab4_production_slice/layer_norm_linear.py | contract | layer_norm_linear_forward takes a contiguous weight itself as the place for the scaled rows (`scaled = weight if weight.is_contiguous() else ...`), so scale_kernel overwrites the input weight by gamma * weight. scaled must always be a new tensor.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

SCALE_BLOCK = 2048


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [tile(128, 256, 64, stages=s, warps=8) for s in (3, 4)] + [tile(64, 64, 32, stages=2, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    mu, inv = mean_and_rstd(x_ptr + i * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + i, mu)
    tl.store(rstd_ptr + i, inv)


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
    """Row j of scaled is gamma * weight[j]; total[j] is its sum, shift[j] = beta . weight[j] + bias[j]."""
    j = tl.program_id(axis=0).to(tl.int64)
    src = weight_ptr + j * stride_weight
    dst = scaled_ptr + j * N_COLS
    total_lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    shift_lanes = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(src, cols, N_COLS)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty)
        store(dst, cols, N_COLS, s)
        total_lanes += s.to(tl.float32)
        shift_lanes += load(beta_ptr, cols, N_COLS) * w
    tl.store(total_ptr + j, tl.sum(total_lanes, axis=0))
    tl.store(shift_ptr + j, tl.sum(shift_lanes, axis=0) + tl.load(bias_ptr + j).to(tl.float32))


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = x_ptr + rows * stride_x + ks[None, :]
    b_ptrs = scaled_ptr + cols * K + ks[:, None]
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        left = K - start
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & (cols < N), other=0.0)
        product += tl.dot(a, b, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K

    mu = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    inv = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = inv * (product - mu * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = weight if weight.is_contiguous() else torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)

    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    width = min(block_of(K), SCALE_BLOCK)
    launch = on(scale_kernel, x)[(N,)]
    launch(weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=width)

    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))
    launch = on(linear_kernel, x)[grid]
    launch(x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
