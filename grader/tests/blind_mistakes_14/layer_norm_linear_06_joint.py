# labs/lab4_production_slice/layer_norm_linear.py | right | Statistics and scaling share one launch of M + N programs, of which the first M have rows of x and the others rows of the weight; the product has rows of tiles along axis 0 and loads the scaled weight row by row, transposed by tl.trans.
"""LayerNorm and the Linear layer behind it: two launches, one to prepare and one for the product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [tile(128, 256, 64, stages=3, warps=8), tile(128, 128, 64, stages=3, warps=8), tile(64, 64, 32, stages=3, warps=4)]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def statistics(x_ptr, mean_ptr, rstd_ptr, row, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Mean and rstd of one row of x."""
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def scale(
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    total_ptr,
    shift_ptr,
    row,
    stride_weight,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row of the weight times gamma, its sum, and what beta and the bias add to this output."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    shift = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + row * stride_weight, cols, N_COLS)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, s)
        total += s.to(tl.float32)
        shift += w * load(beta_ptr, cols, N_COLS)
    tl.store(total_ptr + row, tl.sum(total, axis=0))
    tl.store(shift_ptr + row, tl.sum(shift, axis=0) + tl.load(bias_ptr + row).to(tl.float32))


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
    """Programs below n_rows have a row of x each, the programs from there on a row of the weight."""
    i = tl.program_id(axis=0).to(tl.int64)
    if i < n_rows:
        statistics(x_ptr, mean_ptr, rstd_ptr, i, stride_x, eps, N_COLS, BLOCK)
    else:
        scale(
            weight_ptr,
            gamma_ptr,
            beta_ptr,
            bias_ptr,
            scaled_ptr,
            total_ptr,
            shift_ptr,
            i - n_rows,
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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (i, j) computes a BLOCK_M x BLOCK_N tile."""
    m = tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    n = tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    m_ok = m < M
    n_ok = n < N
    x_rows = x_ptr + m[:, None] * stride_x
    s_rows = scaled_ptr + n[:, None] * K

    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = (start + k)[None, :]
        a = tl.load(x_rows + ks, mask=m_ok[:, None] & (ks < K), other=0.0)
        b = tl.load(s_rows + ks, mask=n_ok[:, None] & (ks < K), other=0.0)
        product = tl.dot(a, tl.trans(b), product, input_precision="ieee")

    mean = tl.load(mean_ptr + m, mask=m_ok, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + m, mask=m_ok, other=0.0)[:, None]
    total = tl.load(total_ptr + n, mask=n_ok, other=0.0)[None, :]
    shift = tl.load(shift_ptr + n, mask=n_ok, other=0.0)[None, :]
    y = (product - mean * total) * rstd + shift
    y_ptrs = y_ptr + m[:, None] * stride_y + n[None, :]
    tl.store(y_ptrs, y.to(y_ptr.dtype.element_ty), mask=m_ok[:, None] & n_ok[None, :])


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm."""
    M, K = x.shape
    N = weight.shape[0]
    if out is None:
        out = x.new_empty((M, N))
    scaled = x.new_empty((N, K))
    mean, rstd = x.new_empty((2, M), dtype=torch.float32)
    total, shift = x.new_empty((2, N), dtype=torch.float32)
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
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    on(linear_kernel, x)[tiles](x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0))
    return out
