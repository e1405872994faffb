# labs/lab4_production_slice/layer_norm_linear.py | right | right
"""LayerNorm + Linear with one launch that prepares and one that multiplies."""

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
    tile(128, 128, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def statistics_of(row, x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of a row of x."""
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def scale_of(
    j,
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
    """Row j of the scaled weight and its two sums."""
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + j * stride_weight, cols, N_COLS)
        s = (load(gamma_ptr, cols, N_COLS) * w).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + j * N_COLS, cols, N_COLS, s)
        total += tl.sum(s.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * w, axis=0)
    shift += tl.load(bias_ptr + j).to(tl.float32)
    tl.store(total_ptr + j, total)
    tl.store(shift_ptr + j, shift)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    n_rows,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Programs below n_rows have a row of x each, those from n_rows on a row of the weight each."""
    pid = tl.program_id(axis=0).to(tl.int64)
    if pid < n_rows:
        statistics_of(pid, x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS, BLOCK)
    else:
        scale_of(
            pid - n_rows,
            weight_ptr,
            gamma_ptr,
            beta_ptr,
            bias_ptr,
            scaled_ptr,
            total_ptr,
            shift_ptr,
            stride_weight,
            N_COLS,
            BLOCK,
        )


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
    first_row = tl.program_id(axis=1) * BLOCK_M
    first_col = tl.program_id(axis=0) * BLOCK_N
    x_block = tl.make_block_ptr(
        base=x_ptr,
        shape=(M, K),
        strides=(stride_x, 1),
        offsets=(first_row, 0),
        block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )
    # scaled is (N, K): seen as its transpose
    s_block = tl.make_block_ptr(
        base=scaled_ptr,
        shape=(K, N),
        strides=(1, K),
        offsets=(0, first_col),
        block_shape=(BLOCK_K, BLOCK_N),
        order=(0, 1),
    )
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        a = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(s_block, boundary_check=(0, 1), padding_option="zero")
        product = tl.dot(a, b, product, input_precision="ieee")
        x_block = tl.advance(x_block, (0, BLOCK_K))
        s_block = tl.advance(s_block, (BLOCK_K, 0))

    rows = first_row + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = first_col + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
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
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    on(prepare_kernel, x)[(M + N,)](
        x,
        weight,
        gamma,
        beta,
        bias,
        mean,
        rstd,
        scaled,
        total,
        shift,
        M,
        x.stride(0),
        weight.stride(0),
        eps,
        N_COLS=K,
        BLOCK=block_of(K),
    )
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
