# labs/lab4_production_slice/layer_norm_linear.py | corner | linear_kernel: the loop of unmasked steps ends before K - BLOCK_K, but the masked last step starts at K // BLOCK_K * BLOCK_K. Where K is a multiple of BLOCK_K (32) that is K itself, so the last 32 columns are left out of the product; it should start at (K - 1) // BLOCK_K * BLOCK_K.
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


# Short steps and a deep pipeline.
SHAPES = ((128, 256, 4, 8), (256, 128, 4, 8), (128, 128, 4, 4), (64, 64, 4, 4))
TILES = [tile(m, n, 32, stages=stages, warps=warps) for m, n, stages, warps in SHAPES]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    row_mean, row_rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(rstd_ptr + row, row_rstd)
    tl.store(mean_ptr + row, row_mean)


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
    """Row j of scaled is gamma * weight[j], rounded to its dtype; program j has row j.

    total[j] is the sum of that row, and shift[j] the sum of beta * weight[j], plus bias[j]; both are fp32.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    w_row = weight_ptr + row * stride_weight
    s_row = scaled_ptr + row * N_COLS
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(w_row, cols, N_COLS)
        shift += tl.sum(w * load(beta_ptr, cols, N_COLS), axis=0)
        s = (w * load(gamma_ptr, cols, N_COLS)).to(s_row.dtype.element_ty)
        tl.store(s_row + cols, s, mask=cols < N_COLS)
        total += tl.sum(s.to(tl.float32), axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def step(product, x_rows, s_rows, x_inside, s_inside, ks, K, LAST: tl.constexpr):
    """product, and what the columns ks of both operands add to it; only the last step looks at K."""
    if LAST:
        xs = tl.load(x_rows + ks[None, :], mask=x_inside & (ks[None, :] < K), other=0.0)
        ss = tl.load(s_rows + ks[:, None], mask=s_inside & (ks[:, None] < K), other=0.0)
    else:
        xs = tl.load(x_rows + ks[None, :], mask=x_inside, other=0.0)
        ss = tl.load(s_rows + ks[:, None], mask=s_inside, other=0.0)
    return tl.dot(xs, ss, product, input_precision="ieee")


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
    """y = rstd * (x @ scaled.T - mean * total) + shift; program (j, i) computes a BLOCK_M x BLOCK_N tile.

    x is (M, K), scaled (N, K), contiguous, and y (M, N). mean and rstd have M numbers, total and shift N.
    """
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    x_rows = x_ptr + rows * stride_x
    s_rows = scaled_ptr + cols * K
    lanes = tl.arange(0, BLOCK_K)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # Whole steps need no comparison with K. What is left over is one step with masks.
    for k in range(0, K - BLOCK_K, BLOCK_K):
        product = step(product, x_rows, s_rows, rows < M, cols < N, k + lanes, K, LAST=False)
    rest = K // BLOCK_K * BLOCK_K
    product = step(product, x_rows, s_rows, rows < M, cols < N, rest + lanes, K, LAST=True)

    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=1.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)

    sizes = {"N_COLS": K, "BLOCK": block_of(K)}
    on(scale_kernel, x)[(N,)](weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), **sizes)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, **sizes)

    def grid(meta):
        return triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"])

    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
