# labs/lab4_production_slice/layer_norm_linear.py | right | Nothing is wrong. Two launches: one kernel whose first M programs do the rows of x and whose other N programs do the rows of the weight, then the product with block pointers and grouped tile order in a grid of one dimension.
"""LayerNorm and the Linear layer behind it, in two launches.

The first one prepares the rows of x and the rows of the weight side by side; the second one is the product.
"""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import WARPS, block_of, load, on, store

TILES = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in (
        (128, 256, 64, 3, 8),
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (64, 64, 32, 2, 4),
    )
]


def small_for_fp32(configs, named_args, **kwargs):
    """Return the last tile for fp32, which is multiplied without tensor cores."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.jit
def describe_row(x_row, mean_ptr, rstd_ptr, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of a row of x."""
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(mean_ptr, mean)
    tl.store(rstd_ptr, rstd)


@triton.jit
def scale_row(
    weight_row, gamma_ptr, beta_ptr, bias_ptr, scaled_row, total_ptr, shift_ptr,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store gamma * a row of the weight, the sum of what was stored, and beta @ the row + its bias."""
    total = 0.0
    shift = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_row, cols, N_COLS)
        scaled = (weight * load(gamma_ptr, cols, N_COLS)).to(scaled_row.dtype.element_ty)
        store(scaled_row, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(weight * load(beta_ptr, cols, N_COLS), axis=0)
    tl.store(total_ptr, total)
    tl.store(shift_ptr, shift + tl.load(bias_ptr).to(tl.float32))


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def prepare_kernel(
    x_ptr,
    weight_ptr,
    gamma_ptr,
    beta_ptr,
    bias_ptr,
    scaled_ptr,
    mean_ptr,
    rstd_ptr,
    total_ptr,
    shift_ptr,
    n_rows,
    stride_x,
    stride_weight,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The first n_rows programs have a row of x each, the others a row of the weight."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_rows:
        describe_row(x_ptr + program * stride_x, mean_ptr + program, rstd_ptr + program, eps, N_COLS, BLOCK)
    else:
        j = program - n_rows
        scale_row(
            weight_ptr + j * stride_weight, gamma_ptr, beta_ptr, bias_ptr + j, scaled_ptr + j * N_COLS,
            total_ptr + j, shift_ptr + j, N_COLS, BLOCK,
        )  # fmt: skip


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": small_for_fp32})
@triton.jit
def product_kernel(
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
    GROUP: tl.constexpr,
):
    """y = rstd * (x @ scaled.T - mean * total) + shift, in tiles that go down GROUP rows of tiles at a time."""
    down = (M + BLOCK_M - 1) // BLOCK_M
    across = (N + BLOCK_N - 1) // BLOCK_N
    number = tl.program_id(axis=0)
    top = number // (across * GROUP) * GROUP
    height = tl.minimum(down - top, GROUP)
    within = number % (across * GROUP)
    first_row = (top + within % height) * BLOCK_M
    first_col = (within // height) * BLOCK_N

    x_block = tl.make_block_ptr(
        x_ptr, shape=(M, K), strides=(stride_x, 1), offsets=(first_row, 0), block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )  # fmt: skip
    s_block = tl.make_block_ptr(
        scaled_ptr, shape=(K, N), strides=(1, K), offsets=(0, first_col), block_shape=(BLOCK_K, BLOCK_N),
        order=(0, 1),
    )  # fmt: skip
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        x = tl.load(x_block, boundary_check=(0, 1), padding_option="zero")
        s = tl.load(s_block, boundary_check=(0, 1), padding_option="zero")
        product = tl.dot(x, s, product, input_precision="ieee")
        x_block = tl.advance(x_block, (0, BLOCK_K))
        s_block = tl.advance(s_block, (BLOCK_K, 0))

    rows = first_row + tl.arange(0, BLOCK_M)
    cols = first_col + tl.arange(0, BLOCK_N)
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
    y = rstd * (product - mean * total) + shift
    y_block = tl.make_block_ptr(
        y_ptr, shape=(M, N), strides=(stride_y, 1), offsets=(first_row, first_col),
        block_shape=(BLOCK_M, BLOCK_N), order=(1, 0),
    )  # fmt: skip
    tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


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
    on(prepare_kernel, x)[(M + N,)](
        x, weight, gamma, beta, bias, scaled, mean, rstd, total, shift, M, x.stride(0), weight.stride(0), eps,
        N_COLS=K, BLOCK=block_of(K),
    )  # fmt: skip
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    on(product_kernel, x)[tiles](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
