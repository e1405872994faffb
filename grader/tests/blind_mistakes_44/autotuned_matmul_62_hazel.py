# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Each tile is summed in two half-width accumulators that share the tile of a, heuristics drop the masks in directions without a tail, tiles are walked in bands of columns as a snake, and a helper stores each half.
"""Matrix product with each tile in two halves side by side, and with heuristics for sizes without a tail."""

import torch
import triton
import triton.language as tl


def _config(tile_m, half_n, tile_k, num_stages, num_warps):
    """A tile of tile_m rows and twice half_n columns."""
    tile = {"TILE_M": tile_m, "HALF_N": half_n, "TILE_K": tile_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 8),
    _config(64, 64, 64, 3, 4),
    _config(64, 32, 32, 3, 4),
]


def worth_it(configs, named_args, **kwargs):
    """Tiles that the result fills; for fp32 no more than 64 columns. The last one is always among them."""
    m, n = named_args["M"], named_args["N"]
    if named_args["left"].dtype == torch.float32:
        m, n = min(m, 64), min(n, 64)
    return [c for c in configs[:-1] if c.kwargs["TILE_M"] <= m and 2 * c.kwargs["HALF_N"] <= n] + configs[-1:]


@triton.jit
def snake(number, down, across, WIDTH: tl.constexpr):
    """Tile row and tile column: bands of WIDTH tile columns; every second row runs back from right to left."""
    band = number // (WIDTH * down)
    begin = band * WIDTH
    width = tl.minimum(across - begin, WIDTH)
    inner = number - begin * down
    row = inner // width
    step = inner % width
    return row, begin + tl.where(row % 2 == 0, step, width - 1 - step)


@triton.jit
def fetch(ptrs, down_ok, across_ok, DOWN: tl.constexpr, ACROSS: tl.constexpr):
    """A tile with 0 outside; DOWN and ACROSS say that no mask is needed in this direction."""
    if DOWN and ACROSS:
        return tl.load(ptrs)
    elif DOWN:
        return tl.load(ptrs, mask=across_ok, other=0.0)
    elif ACROSS:
        return tl.load(ptrs, mask=down_ok, other=0.0)
    else:
        return tl.load(ptrs, mask=down_ok & across_ok, other=0.0)


@triton.jit
def finish(acc, dest, bias_ptr, rows, cols, M, N, stride_m, stride_n, BIAS_RELU: tl.constexpr):
    """Stores one half of a tile, with bias and ReLU where they are asked for."""
    if BIAS_RELU:
        acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    ptrs = dest + rows[:, None] * stride_m + cols[None, :] * stride_n
    tl.store(ptrs, acc.to(dest.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": worth_it})
@triton.heuristics({
    "EVEN_M": lambda args: args["M"] % args["TILE_M"] == 0,
    "EVEN_N": lambda args: args["N"] % (2 * args["HALF_N"]) == 0,
    "EVEN_K": lambda args: args["K"] % args["TILE_K"] == 0,
})  # fmt: skip
@triton.jit
def halves_kernel(
    left, right, dest, bias_ptr, M, N, K, left_m, left_k, right_k, right_n, dest_m, dest_n,
    BIAS_RELU: tl.constexpr, TILE_M: tl.constexpr, HALF_N: tl.constexpr, TILE_K: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """dest = left @ right, or relu(left @ right + bias): one tile of left meets two of right."""
    row, col = snake(tl.program_id(axis=0), tl.cdiv(M, TILE_M), tl.cdiv(N, 2 * HALF_N), 6)
    rows = (row * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)
    cols0 = (col * 2 * HALF_N + tl.arange(0, HALF_N)).to(tl.int64)
    cols1 = cols0 + HALF_N
    row_ok = rows[:, None] < M
    ok0 = cols0[None, :] < N
    ok1 = cols1[None, :] < N
    acc0 = tl.zeros((TILE_M, HALF_N), dtype=tl.float32)
    acc1 = tl.zeros((TILE_M, HALF_N), dtype=tl.float32)
    for start in range(0, K, TILE_K):
        k = start + tl.arange(0, TILE_K)
        k_down = k[:, None] < K
        k_across = k[None, :] < K
        x = fetch(left + rows[:, None] * left_m + k[None, :] * left_k, row_ok, k_across, EVEN_M, EVEN_K)
        y0 = fetch(right + k[:, None] * right_k + cols0[None, :] * right_n, k_down, ok0, EVEN_K, EVEN_N)
        y1 = fetch(right + k[:, None] * right_k + cols1[None, :] * right_n, k_down, ok1, EVEN_K, EVEN_N)
        acc0 = tl.dot(x, y0, acc0, input_precision="ieee")
        acc1 = tl.dot(x, y1, acc1, input_precision="ieee")
    finish(acc0, dest, bias_ptr, rows, cols0, M, N, dest_m, dest_n, BIAS_RELU)
    finish(acc1, dest, bias_ptr, rows, cols1, M, N, dest_m, dest_n, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["TILE_M"]) * triton.cdiv(N, 2 * meta["HALF_N"]),)  # noqa: E731
    halves_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
