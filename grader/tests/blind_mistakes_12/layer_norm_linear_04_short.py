# labs/lab4_production_slice/layer_norm_linear.py | corner | bias is added in each block of a weight row, so it counts once for each block; it must be added once, behind the loop; shows for n_cols above 1024, the BLOCK of its scale_kernel
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(m, n, k, stages, warps):
    """One config."""
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps)


TILES = [tile(128, 128, 64, 4, 8), tile(128, 256, 64, 3, 8), tile(64, 64, 32, 3, 4)]


def fitting(configs, named_args, **kwargs):
    """fp32 takes the last tile."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of a row."""
    i = tl.program_id(0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + i * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)


@triton.jit
def scale_kernel(
    w_ptr, gamma_ptr, beta_ptr, bias_ptr, s_ptr, total_ptr, shift_ptr, stride_w, N_COLS, BLOCK: tl.constexpr
):
    """s = gamma * w for a row of w, its sum, and beta * w + bias summed up."""
    j = tl.program_id(0).to(tl.int64)
    w_row = w_ptr + j * stride_w
    s_row = s_ptr + j * N_COLS
    bias = tl.load(bias_ptr + j).to(tl.float32)
    total = 0.0
    shift = 0.0
    for c in range(0, N_COLS, BLOCK):
        cols = c + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(s_ptr.dtype.element_ty)
        store(s_row, cols, N_COLS, s)
        total += tl.sum(s.to(tl.float32), axis=0)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0) + bias
    tl.store(total_ptr + j, total)
    tl.store(shift_ptr + j, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, s_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ s.T - mean * total) + shift, a tile a program."""
    i = tl.program_id(1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        k = k0 + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + i[:, None] * stride_x + k[None, :], mask=(i < M)[:, None] & (k < K)[None, :], other=0)
        s = tl.load(s_ptr + j[:, None] * K + k[None, :], mask=(j < N)[:, None] & (k < K)[None, :], other=0)
        acc = tl.dot(x, tl.trans(s), acc, input_precision="ieee")
    mean = tl.load(mean_ptr + i, mask=i < M, other=0)[:, None]
    rstd = tl.load(rstd_ptr + i, mask=i < M, other=0)[:, None]
    total = tl.load(total_ptr + j, mask=j < N, other=0)[None, :]
    shift = tl.load(shift_ptr + j, mask=j < N, other=0)[None, :]
    y = rstd * (acc - mean * total) + shift
    y_tile = y_ptr + i[:, None] * stride_y + j[None, :]
    tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=(i < M)[:, None] & (j < N)[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias."""
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    s = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, s, total, shift, weight.stride(0), K, BLOCK=1024
    )
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](x, s, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
