# labs/lab4_production_slice/layer_norm_linear.py | corner | In `linear_kernel`, the masks `across < K` and `down < K` should be `< last`, the end of the part: the last step of a part runs on into the next part, whose first columns are added twice. Shows only where K is split (K >= 4096 and M * N <= 65536) and cdiv(K, 4) is no multiple of BLOCK_K, as for K = 8201 or 40000; K = 4096 and all shorter rows are right.
"""LayerNorm and the Linear layer behind it, with one matrix product."""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import load, on, store

LONG = 4096  # rows of at least so many columns are cut into PARTS, if the result is small
SMALL = 65536  # elements of a result that has too few tiles for all SMs
PARTS = 4
STRIP = 4096
FEW_WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


def tile(block_m, block_n, block_k, *, stages, warps):
    """Return a candidate for the autotuner."""
    sizes = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(sizes, num_stages=stages, num_warps=warps)


TILES = [
    tile(128, 128, 64, stages=4, warps=8),
    tile(64, 128, 64, stages=3, warps=4),
    tile(64, 64, 64, stages=4, warps=4),
    tile(64, 64, 32, stages=3, warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Return the last tile for fp32, where a large one would be unrolled into thousands of instructions."""
    return configs[-1:] if named_args["x_ptr"].dtype == torch.float32 else configs


@triton.autotune(configs=FEW_WARPS, key=["N_COLS"])
@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Store mean and 1 / sqrt(variance + eps) of row i of x, in fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.autotune(configs=FEW_WARPS, key=["N_COLS"])
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
    """Row j of scaled is gamma * weight[j] in its dtype, total[j] its sum, shift[j] what beta and bias add."""
    row = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    shift = tl.load(bias_ptr + row).to(tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr + row * stride_weight, cols, N_COLS)
        scaled = (load(gamma_ptr, cols, N_COLS) * weight).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
        shift += tl.sum(load(beta_ptr, cols, N_COLS) * weight, axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, shift)


@triton.jit
def normed(product, rows, cols, M, N, mean_ptr, rstd_ptr, total_ptr, shift_ptr):
    """The norm behind the product, for a tile at a column of rows and a row of columns."""
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    return rstd * (product - mean * total) + shift


@triton.autotune(
    configs=TILES, key=["M", "N", "K", "SPLIT"], prune_configs_by={"early_config_prune": fitting}
)
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
    SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """A tile of the result; or of one of SPLIT fp32 matrices whose sum is x @ scaled.T, one below the other."""
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    part = tl.program_id(axis=2)
    length = tl.cdiv(K, SPLIT)
    first = part * length
    last = tl.minimum(first + length, K)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(first, last, BLOCK_K):
        across = start + tl.arange(0, BLOCK_K)[None, :]
        down = start + tl.arange(0, BLOCK_K)[:, None]
        a = tl.load(x_ptr + rows * stride_x + across, mask=(rows < M) & (across < K), other=0.0)
        b = tl.load(scaled_ptr + cols * K + down, mask=(cols < N) & (down < K), other=0.0)
        product = tl.dot(a, b, product, input_precision="ieee")
    if SPLIT == 1:
        product = normed(product, rows, cols, M, N, mean_ptr, rstd_ptr, total_ptr, shift_ptr)
    y_tile = y_ptr + (part * M + rows) * stride_y + cols
    tl.store(y_tile, product.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def join_kernel(
    parts_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, stride_y,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Add up the SPLIT matrices, always in the same order, and apply the norm."""
    rows = tl.program_id(axis=1) * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :].to(tl.int64)
    product = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        at = parts_ptr + (part * M + rows) * N + cols
        product += tl.load(at, mask=(rows < M) & (cols < N), other=0.0)
    y = normed(product, rows, cols, M, N, mean_ptr, rstd_ptr, total_ptr, shift_ptr)
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
    strip = min(triton.next_power_of_2(K), STRIP)
    on(statistics_kernel, x)[(M,)](x, mean, rstd, x.stride(0), eps, N_COLS=K, BLOCK=strip)
    on(scale_kernel, x)[(N,)](
        weight, gamma, beta, bias, scaled, total, shift, weight.stride(0), N_COLS=K, BLOCK=strip
    )
    split = PARTS if K >= LONG and M * N <= SMALL else 1
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(M, meta["BLOCK_M"]), split)  # noqa: E731
    if split == 1:
        target = out
    else:
        target = torch.empty((split * M, N), device=x.device, dtype=torch.float32)
    on(linear_kernel, x)[grid](
        x, scaled, mean, rstd, total, shift, target, M, N, K, x.stride(0), target.stride(0), SPLIT=split
    )
    if split > 1:
        on(join_kernel, x)[(triton.cdiv(N, 64), triton.cdiv(M, 16))](
            target, mean, rstd, total, shift, out, M, N, out.stride(0), SPLIT=split, ROWS=16, COLS=64
        )
    return out
