# labs/lab4_production_slice/layer_norm_linear.py | contract | Without out, layer_norm_linear_forward allocates the result as fp32 whatever the dtype of x; it should have the dtype of x.
"""LayerNorm and Linear as one product, with block pointers."""

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
    tile(128, 256, 64, stages=4, warps=8),
    tile(128, 128, 64, stages=3, warps=4),
    tile(64, 64, 32, stages=2, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
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
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The scaled row j, the sum of it, and the shift of output j."""
    row = tl.program_id(axis=0).to(tl.int64)
    weight_row = weight_ptr + row * stride_weight
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_row, cols, N_COLS)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
        scaled = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty).to(tl.float32)
        total += tl.sum(scaled, axis=0)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, scaled)
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
    """y = rstd * (x @ scaled.T - mean * total) + shift, a tile for each program."""
    row = tl.program_id(axis=1) * BLOCK_M
    col = tl.program_id(axis=0) * BLOCK_N
    x_block = tl.make_block_ptr(
        base=x_ptr,
        shape=(M, K),
        strides=(stride_x, 1),
        offsets=(row, 0),
        block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )
    s_block = tl.make_block_ptr(
        base=scaled_ptr,
        shape=(K, N),
        strides=(1, K),
        offsets=(0, col),
        block_shape=(BLOCK_K, BLOCK_N),
        order=(0, 1),
    )
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        s = tl.load(s_block, boundary_check=(0, 1), padding_option="zero")
        product = tl.dot(x, s, product, input_precision="ieee")
        x_block = tl.advance(x_block, (0, BLOCK_K))
        s_block = tl.advance(s_block, (BLOCK_K, 0))
    rows = row + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = col + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    fp32 = {"device": x.device, "dtype": torch.float32}
    if out is None:
        out = torch.empty((M, N), **fp32)
    mean = torch.empty((M,), **fp32)
    rstd = torch.empty((M,), **fp32)
    total = torch.empty((N,), **fp32)
    shift = torch.empty((N,), **fp32)
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=block_of(K)
    )
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
