# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In layer_norm_linear_forward, the launch of linear_kernel passes `weight` as its second argument, so the product is taken with the weight without gamma (and by the stride of `scaled`); it should be `scaled`.
"""LayerNorm + Linear: the product sees the raw x, the norm is put on afterwards."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [tile(128, 256, 64, stages=4, warps=8), tile(128, 128, 32, stages=4, warps=4), tile(64, 64, 32, stages=4, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    mu, inv = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mu)
    tl.store(rstd_ptr + row, inv)


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
    w_row = weight_ptr + row * stride_weight
    s_row = scaled_ptr + row * N_COLS
    totals = tl.zeros((BLOCK,), dtype=tl.float32)
    shifts = tl.zeros((BLOCK,), dtype=tl.float32)
    for off in range(0, N_COLS, BLOCK):
        c = off + tl.arange(0, BLOCK)
        w = load(w_row, c, N_COLS)
        s = (load(gamma_ptr, c, N_COLS) * w).to(scaled_ptr.dtype.element_ty)
        totals += s.to(tl.float32)
        shifts += load(beta_ptr, c, N_COLS) * w
        store(s_row, c, N_COLS, s)
    total = tl.sum(totals, axis=0)
    shift = tl.sum(shifts, axis=0) + tl.load(bias_ptr + row).to(tl.float32)
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
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = x_ptr + rows * stride_x + offs_k[None, :]
    b_ptrs = scaled_ptr + cols * K + offs_k[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(rows < M) & (offs_k[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(cols < N) & (offs_k[:, None] < left), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K

    mu = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    inv = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    acc -= mu * total
    y = acc * inv + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)

    BLOCK = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=BLOCK)
    on(scale_kernel, weight)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=BLOCK
    )

    def grid(meta):
        return triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"])

    on(linear_kernel, x)[grid](
        x,
        weight,
        mean,
        rstd,
        total,
        shift,
        out,
        M,
        N,
        K,
        x.stride(0),
        out.stride(0),
    )
    return out
