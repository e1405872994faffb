# labs/lab4_production_slice/layer_norm_linear.py | error | In `linear_kernel`, `acc = tl.dot(z, w, acc, input_precision="ieee")` multiplies z, which is fp32, with w of the dtype of the weight: tl.dot requires operands of one dtype, so the kernel does not compile for fp16 and bf16. It should be `z.to(w.dtype)`. All fp32 cases are right.
"""LayerNorm and the Linear layer behind it: each tile of x is normalised on its way into the product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=3, warps=8),
    tile(128, 128, 32, stages=4, warps=8),
    tile(128, 64, 64, stages=3, warps=8),
    tile(64, 64, 32, stages=3, warps=4),
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


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_kernel(
    x_ptr,
    gamma_ptr,
    beta_ptr,
    weight_ptr,
    bias_ptr,
    mean_ptr,
    rstd_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_x,
    stride_weight,
    stride_y,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """y = z @ weight.T + bias, where z = (x - mean) * rstd * gamma + beta; program (j, i) computes a tile.

    x is (M, K), weight (N, K) and y (M, N), each with a row stride of its own. z lives in registers only.
    """
    rows = tl.program_id(axis=1).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(axis=0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_exists = (rows < M)[:, None]
    col_exists = (cols < N)[None, :]
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    x_rows = x_ptr + rows[:, None] * stride_x
    weight_rows = weight_ptr + cols[None, :] * stride_weight

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_rows + ks[None, :], mask=row_exists & (ks < K)[None, :], other=0.0)
        w = tl.load(weight_rows + ks[:, None], mask=(ks < K)[:, None] & col_exists, other=0.0)
        gamma = load(gamma_ptr, ks, K)[None, :]
        beta = load(beta_ptr, ks, K)[None, :]
        # Past K the weight is 0, so it does not matter what z is there.
        z = (x.to(tl.float32) - mean) * rstd * gamma + beta
        acc = tl.dot(z, w, acc, input_precision="ieee")

    bias = load(bias_ptr, cols, N)[None, :]
    y = (acc + bias).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + rows[:, None] * stride_y + cols[None, :], y, mask=row_exists & col_exists)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    """layer_norm(x) @ weight.T + bias, where gamma and beta are the weight and the bias of the norm.

    x is (n_rows, n_cols), gamma and beta are (n_cols,), weight (n_outs, n_cols) and bias (n_outs,), all fp32,
    fp16 or bf16 with contiguous columns. The result, (n_rows, n_outs), goes to `out` where one is given.
    """
    M, K = x.shape
    N = weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=block_of(K))
    on(linear_kernel, x)[lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]))](
        x, gamma, beta, weight, bias, mean, rstd, out,
        M, N, K, x.stride(0), weight.stride(0), out.stride(0),
    )  # fmt: skip
    return out
