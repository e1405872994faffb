# lab4_production_slice/layer_norm_linear.py | honest | the product is computed transposed (scaled @ x.T) in a 1-D grid with bands of tiles as in the grouped order of Triton's matmul tutorial, along K from the last block to the first, and transposed before the store | meets the whole contract
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


TILES = [tile(128, 128, 64, stages=3, warps=8), tile(64, 64, 32, stages=3, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    i = tl.program_id(axis=0).to(tl.int64)
    m, r = mean_and_rstd(x_ptr + i * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + i, m)
    tl.store(rstd_ptr + i, r)


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
    """Row j of scaled is gamma * weight[j]; program j has row j."""
    j = tl.program_id(axis=0).to(tl.int64)
    sums_s = tl.zeros((BLOCK,), dtype=tl.float32)
    sums_b = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + j * stride_weight, cols, N_COLS)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        sums_s += s.to(tl.float32)
        sums_b += w * load(beta_ptr, cols, N_COLS)
        store(scaled_ptr + j * N_COLS, cols, N_COLS, s)
    total = tl.sum(sums_s, axis=0)
    shift = tl.sum(sums_b, axis=0) + tl.load(bias_ptr + j).to(tl.float32)
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
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BAND: tl.constexpr,
):
    """Tiles of the transposed result, scaled @ x.T, in a 1-D grid; BAND tiles of rows go together, for the L2 cache."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid = tl.program_id(axis=0)
    band = pid // (BAND * tiles_n)
    height = tl.minimum(tiles_m - band * BAND, BAND)
    within = pid % (BAND * tiles_n)
    i = band * BAND + within % height
    j = within // height

    m = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    n = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    m_ok = m < M
    n_ok = n < N
    mean = tl.load(mean_ptr + m, mask=m_ok, other=0.0)
    total = tl.load(total_ptr + n, mask=n_ok, other=0.0)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    first = (tl.cdiv(K, BLOCK_K) - 1) * BLOCK_K
    for done in range(0, K, BLOCK_K):
        k = first - done + tl.arange(0, BLOCK_K)
        k_ok = k < K
        s = tl.load(
            scaled_ptr + n[:, None] * K + k[None, :], mask=n_ok[:, None] & k_ok[None, :], other=0.0
        )
        x = tl.load(
            x_ptr + m[None, :] * stride_x + k[:, None], mask=m_ok[None, :] & k_ok[:, None], other=0.0
        )
        acc = tl.dot(s, x, acc, input_precision="ieee")
    rstd = tl.load(rstd_ptr + m, mask=m_ok, other=0.0)
    shift = tl.load(shift_ptr + n, mask=n_ok, other=0.0)
    acc = (acc - total[:, None] * mean[None, :]) * rstd[None, :] + shift[:, None]
    tl.store(
        y_ptr + m[:, None] * stride_y + n[None, :],
        tl.trans(acc).to(y_ptr.dtype.element_ty),
        mask=m_ok[:, None] & n_ok[None, :],
    )


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    row_meta = {"N_COLS": K, "BLOCK": block_of(K)}
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **row_meta)
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **row_meta)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]) * triton.cdiv(M, meta["BLOCK_M"]),)
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0), BAND=8
    )
    return out
