# labs/lab4_production_slice/layer_norm_linear.py | error | In linear_kernel mean is a vector of BLOCK_M numbers, and mean * total[None, :] meets (1, BLOCK_N): the blocks (1, BLOCK_M) and (1, BLOCK_N) do not go together, as they differ in every config. It should be mean[:, None] * total[None, :].
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


TILES = [
    tile(128, 256, 64, stages=3, warps=8),
    tile(128, 64, 64, stages=4, warps=4),
    tile(64, 32, 32, stages=2, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr, gamma_ptr, beta_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, stride_weight,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    w_row = weight_ptr + row * stride_weight
    s_row = scaled_ptr + row * N_COLS
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        # as the product will see it
        s = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty).to(tl.float32)
        store(s_row, cols, N_COLS, s)
        total += tl.sum(s, axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * w, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x, stride_y,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y = rstd * (x @ scaled.T - mean * total) + shift for one tile."""
    i = tl.program_id(axis=1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(axis=0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x_tile = x_ptr + i[:, None] * stride_x + k[None, :]
    s_tile = scaled_ptr + j[None, :] * K + k[:, None]

    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for done in range(0, K, BLOCK_K):
        left = K - done
        x = tl.load(x_tile, mask=(i[:, None] < M) & (k[None, :] < left), other=0.0)
        s = tl.load(s_tile, mask=(j[None, :] < N) & (k[:, None] < left), other=0.0)
        product = tl.dot(x, s, product, input_precision="ieee")
        x_tile += BLOCK_K
        s_tile += BLOCK_K

    mean = tl.load(mean_ptr + i, mask=i < M, other=0.0)
    rstd = tl.load(rstd_ptr + i, mask=i < M, other=0.0)
    total = tl.load(total_ptr + j, mask=j < N, other=0.0)
    shift = tl.load(shift_ptr + j, mask=j < N, other=0.0)
    centred = product - mean * total[None, :]
    y = rstd[:, None] * centred + shift[None, :]
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(y_ptr + i[:, None] * stride_y + j[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    width = block_of(K)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=width)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=width
    )
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
