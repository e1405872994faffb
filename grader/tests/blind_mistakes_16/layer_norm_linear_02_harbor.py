# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In linear_kernel the accumulator starts at shift (`acc = tl.zeros(...) + shift`), so rstd multiplies shift as well. The accumulator should start at 0 and shift be added behind the product with rstd: rstd * (acc - mean * total) + shift.
"""LayerNorm folded into the Linear layer that follows."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on


def tile(bm, bn, bk, stages, warps):
    return triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk}, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 256, 64, 3, 8),
    tile(128, 128, 64, 3, 8),
    tile(128, 64, 64, 4, 4),
    tile(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Only the small tile for fp32."""
    if named_args["x_ptr"].dtype == torch.float32:
        return configs[-1:]
    return configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    m, r = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, m)
    tl.store(rstd_ptr + row, r)


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
    out_feature = tl.program_id(axis=0).to(tl.int64)
    w_row = weight_ptr + out_feature * stride_weight
    s_row = scaled_ptr + out_feature * N_COLS
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    shifts = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        rounded = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        tl.store(s_row + cols, rounded, mask=cols < N_COLS)
        totals += rounded.to(tl.float32)
        shifts += w * load(beta_ptr, cols, N_COLS)
    bias = tl.load(bias_ptr + out_feature).to(tl.float32)
    tl.store(total_ptr + out_feature, tl.sum(totals, axis=0))
    tl.store(shift_ptr + out_feature, tl.sum(shifts, axis=0) + bias)


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
    row_ok, col_ok = rows < M, cols < N
    offs_k = tl.arange(0, BLOCK_K)

    mean = tl.load(mean_ptr + rows, mask=row_ok, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
    total = tl.load(total_ptr + cols, mask=col_ok, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=col_ok, other=0.0)

    x_ptrs = x_ptr + rows * stride_x + offs_k[None, :]
    s_ptrs = scaled_ptr + cols * K + offs_k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32) + shift
    for k in range(0, K, BLOCK_K):
        left = K - k
        x = tl.load(x_ptrs, mask=row_ok & (offs_k[None, :] < left), other=0.0)
        s = tl.load(s_ptrs, mask=col_ok & (offs_k[:, None] < left), other=0.0)
        acc += tl.dot(x, s, input_precision="ieee")
        x_ptrs += BLOCK_K
        s_ptrs += BLOCK_K

    y = rstd * (acc - mean * total)
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=row_ok & col_ok)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean = torch.empty((M,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((M,), device=x.device, dtype=torch.float32)
    total = torch.empty((N,), device=x.device, dtype=torch.float32)
    shift = torch.empty((N,), device=x.device, dtype=torch.float32)

    sizes = {"N_COLS": K, "BLOCK": block_of(K)}
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **sizes)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **sizes)

    def grid(meta):
        return (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))

    on(linear_kernel, x)[grid](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
