# labs/lab4_production_slice/layer_norm_linear.py | right | One launch prepares both the statistics of x and the scaled weight (programs below M and from M on); the product has persistent programs, grouped tile order, and block pointers with boundary checks.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import load, on, store

PROGRAMS = 264  # of the product at most; each computes several tiles
STRIP = 4096
PREPARE = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


def tile(block_m, block_n, block_k, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, 4, 8),
    tile(128, 128, 64, 3, 8),
    tile(128, 64, 64, 4, 4),
    tile(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=PREPARE, key=["N_COLS"])
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
    """The first n_rows programs take the statistics of a row of x, the others scale a row of the weight."""
    program = tl.program_id(axis=0).to(tl.int64)
    if program < n_rows:
        mean, rstd = mean_and_rstd(x_ptr + program * stride_x, eps, N_COLS, BLOCK)
        tl.store(mean_ptr + program, mean)
        tl.store(rstd_ptr + program, rstd)
    else:
        output = program - n_rows
        totals = tl.zeros((BLOCK,), dtype=tl.float32)
        shifts = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            w = load(weight_ptr + output * stride_weight, cols, N_COLS)
            s = (w * load(gamma_ptr, cols, N_COLS)).to(scaled_ptr.dtype.element_ty)
            store(scaled_ptr + output * N_COLS, cols, N_COLS, s)
            totals += s.to(tl.float32)
            shifts += w * load(beta_ptr, cols, N_COLS)
        bias = tl.load(bias_ptr + output).to(tl.float32)
        tl.store(total_ptr + output, tl.sum(totals, axis=0))
        tl.store(shift_ptr + output, tl.sum(shifts, axis=0) + bias)


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
    """y = rstd * (x @ scaled.T - mean * total) + shift, by programs that take one tile after the other.

    Eight tile rows are walked column by column, so that programs in flight share what L2 holds.
    """
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    for number in range(tl.program_id(axis=0), across * down, tl.num_programs(axis=0)):
        above = number // (8 * across) * 8
        height = tl.minimum(down - above, 8)
        within = number % (8 * across)
        top = (above + within % height) * BLOCK_M
        left = within // height * BLOCK_N

        a_tile = tl.make_block_ptr(x_ptr, (M, K), (stride_x, 1), (top, 0), (BLOCK_M, BLOCK_K), (1, 0))
        b_tile = tl.make_block_ptr(scaled_ptr, (K, N), (1, K), (0, left), (BLOCK_K, BLOCK_N), (0, 1))
        product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for _ in range(0, K, BLOCK_K):
            a = tl.load(a_tile, boundary_check=(0, 1), padding_option="zero")
            b = tl.load(b_tile, boundary_check=(0, 1), padding_option="zero")
            product = tl.dot(a, b, product, input_precision="ieee")
            a_tile = tl.advance(a_tile, (0, BLOCK_K))
            b_tile = tl.advance(b_tile, (BLOCK_K, 0))

        rows = top + tl.arange(0, BLOCK_M)
        cols = left + tl.arange(0, BLOCK_N)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)[:, None]
        total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)[None, :]
        shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)[None, :]
        y = (product - mean * total) * rstd + shift
        y_tile = y_ptr + rows.to(tl.int64)[:, None] * stride_y + cols[None, :]
        inside = (rows < M)[:, None] & (cols < N)[None, :]
        tl.store(y_tile, y.to(y_ptr.dtype.element_ty), mask=inside)


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
        N_COLS=K, BLOCK=min(triton.next_power_of_2(K), STRIP),
    )  # fmt: skip
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(tiles(meta), PROGRAMS),)  # noqa: E731
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    )
    return out
