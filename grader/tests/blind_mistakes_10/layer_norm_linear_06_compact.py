# labs/lab4_production_slice/layer_norm_linear.py | contract | scale_kernel stores the scaled row back into the weight (`tl.store(w_row + cols, s, ...)`) to save a second matrix, so the input weight is changed; the contract: inputs are not changed. Must go to a new (N, K) tensor. The result of one call is right; a second call with the same weight, and the gradients, are wrong.
"""LayerNorm and Linear with few buffers: four vectors beside the arguments."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [tile(128, 256, 64, stages=3, warps=8), tile(128, 128, 64, stages=3, warps=8), tile(64, 64, 32, stages=3, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of each row."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def scale_kernel(
    w_ptr, gamma_ptr, beta_ptr, bias_ptr, total_ptr, shift_ptr, stride_w, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Fold gamma into row j of the weight; no autotuning here, each row is scaled once."""
    j = tl.program_id(axis=0).to(tl.int64)
    w_row = w_ptr + j * stride_w
    total = 0.0
    shift = tl.load(bias_ptr + j).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * w, axis=0)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(w_ptr.dtype.element_ty)
        total += tl.sum(s.to(tl.float32), axis=0)
        tl.store(w_row + cols, s, mask=cols < N_COLS)
    tl.store(total_ptr + j, total)
    tl.store(shift_ptr + j, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    mean_ptr,
    rstd_ptr,
    total_ptr,
    shift_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_x,
    stride_w,
    stride_y,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Program (j, i) computes a BLOCK_M x BLOCK_N tile."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        at = k + ks
        x = tl.load(x_ptr + rows * stride_x + at[None, :], mask=(rows < M) & (at < K)[None, :], other=0.0)
        w = tl.load(w_ptr + cols * stride_w + at[:, None], mask=(cols < N) & (at < K)[:, None], other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    acc -= tl.load(mean_ptr + rows, mask=rows < M, other=0.0) * tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    acc *= tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    acc += tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    tl.store(y_ptr + rows * stride_y + cols, acc.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    block = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, total, shift, weight.stride(0), N_COLS=K, BLOCK=block, num_warps=8
    )
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))
    on(linear_kernel, x)[grid](
        x, weight, mean, rstd, total, shift, y, M, N, K, x.stride(0), weight.stride(0), y.stride(0)
    )
    return y
