# labs/lab4_production_slice/layer_norm_linear.py | right | right
"""LayerNorm and Linear with one product, whose tiles lie on their side: outputs down, rows of x across."""

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
    tile(256, 128, 64, stages=3, warps=8),
    *[tile(128, 128, 64, stages=stages, warps=8) for stages in (3, 4)],
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, numbers_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean of row i to element i of numbers, rstd to element n_rows + i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(numbers_ptr + row, mean)
    tl.store(numbers_ptr + n_rows + row, rstd)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def scale_kernel(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    numbers_ptr,
    n_outs,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row j of scaled; its sum to element j of numbers, the shift of output j to element n_outs + j."""
    j = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + j * stride_weight
    scaled_row = scaled_ptr + j * N_COLS
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        k = start + tl.arange(0, BLOCK)
        w = load(weight_row, k, N_COLS)
        s = (w * load(gamma_ptr, k, N_COLS)).to(scaled_ptr.dtype.element_ty)
        total += s.to(tl.float32)
        shift += w * load(beta_ptr, k, N_COLS)
        store(scaled_row, k, N_COLS, s)
    bias = tl.load(bias_ptr + j).to(tl.float32)
    tl.store(numbers_ptr + j, tl.sum(total, axis=0))
    tl.store(numbers_ptr + n_outs + j, tl.sum(shift, axis=0) + bias)


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    scaled_ptr,
    of_rows_ptr,
    of_outs_ptr,
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
    """Program (j, i) computes a tile of scaled @ x.T, corrects it, and stores it across."""
    outs = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None].to(tl.int64)
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[None, :].to(tl.int64)
    product = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        across = start + tl.arange(0, BLOCK_K)[None, :]
        down = start + tl.arange(0, BLOCK_K)[:, None]
        s = tl.load(scaled_ptr + outs * K + across, mask=(outs < N) & (across < K), other=0.0)
        x = tl.load(x_ptr + rows * stride_x + down, mask=(rows < M) & (down < K), other=0.0)
        product = tl.dot(s, x, product, input_precision="ieee")
    mean = tl.load(of_rows_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(of_rows_ptr + M + rows, mask=rows < M, other=0.0)
    total = tl.load(of_outs_ptr + outs, mask=outs < N, other=0.0)
    shift = tl.load(of_outs_ptr + N + outs, mask=outs < N, other=0.0)
    y = (product - total * mean) * rstd + shift
    tl.store(y_ptr + rows * stride_y + outs, y.to(y_ptr.dtype.element_ty), mask=(outs < N) & (rows < M))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    out = x.new_empty((M, N)) if out is None else out
    scaled = x.new_empty((N, K))
    of_rows = x.new_empty((2, M), dtype=torch.float32)
    of_outs = x.new_empty((2, N), dtype=torch.float32)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, of_outs, N, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    on(statistics_kernel, x)[(M,)](x, of_rows, M, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](x, scaled, of_rows, of_outs, out, M, N, K, x.stride(0), out.stride(0))
    return out
