# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Nothing is wrong. Unusual: if the columns of `out` lie closer than its rows (`out.stride(0) < out.stride(1)`) the host hands over `b.T, a.T, out.T`, so that the kernel computes the transpose and the bias then follows its rows (`BIAS == 2`); `tl.swizzle2d` for the order of tiles, `triton.heuristics` for EVEN_K (no mask along K), a NamedTuple for the tiles, and ReLU by `tl.where`.
"""Matrix product, autotuned. A result whose columns are contiguous is computed as its transpose, b^T a^T."""

import typing

import torch
import triton
import triton.language as tl

NO_BIAS = 0
ALONG_COLUMNS = 1  # one value of the bias for each column of what the kernel computes
ALONG_ROWS = 2  # one for each row: the kernel computes the transpose


class Tile(typing.NamedTuple):
    ROWS: int = 64
    COLUMNS: int = 64
    DEPTH: int = 64
    STAGES: int = 4
    WARPS: int = 4


TILES = (
    Tile(128, 256, 64, 3, 8),
    Tile(256, 128, 64, 3, 8),
    Tile(128, 128, 64, 4, 8),
    Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 32, 4, 4),
)
CONFIGS = [
    triton.Config({"ROWS": rows, "COLUMNS": columns, "DEPTH": depth}, num_stages=stages, num_warps=warps)
    for rows, columns, depth, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["x_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["ROWS"], c.kwargs["COLUMNS"]) <= size]
    return kept or configs[-1:]


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K", "BIAS"], prune_configs_by={"early_config_prune": fitting}
)
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["DEPTH"] == 0})
@triton.jit
def product_kernel(
    x_ptr, y_ptr, z_ptr, bias_ptr, M, N, K, x_m, x_k, y_k, y_n, z_m, z_n, BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """z = x @ y for x (M, K) and y (K, N); BIAS is 0 for none, 1 for one value a column, 2 for one a row."""
    tiles_m = tl.cdiv(M, ROWS)
    tiles_n = tl.cdiv(N, COLUMNS)
    pid = tl.program_id(0)
    tile_m, tile_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, 8)
    row = tl.expand_dims(tile_m * ROWS + tl.arange(0, ROWS), 1).to(tl.int64)
    column = tl.expand_dims(tile_n * COLUMNS + tl.arange(0, COLUMNS), 0).to(tl.int64)
    step = tl.arange(0, DEPTH)
    x_ptrs = x_ptr + (row * x_m + step[None, :] * x_k)
    y_ptrs = y_ptr + (column * y_n + step[:, None] * y_k)

    tl.assume(K > 0)
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    left = K
    for _ in range(tl.cdiv(K, DEPTH)):
        if EVEN_K:
            x = tl.load(x_ptrs, mask=row < M, other=0.0)
            y = tl.load(y_ptrs, mask=column < N, other=0.0)
        else:
            x = tl.load(x_ptrs, mask=(row < M) & (step[None, :] < left), other=0.0)
            y = tl.load(y_ptrs, mask=(column < N) & (step[:, None] < left), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        x_ptrs += DEPTH * x_k
        y_ptrs += DEPTH * y_k
        left -= DEPTH

    if BIAS == 1:
        acc += tl.load(bias_ptr + column, mask=column < N, other=0.0).to(tl.float32)
    elif BIAS == 2:
        acc += tl.load(bias_ptr + row, mask=row < M, other=0.0).to(tl.float32)
    if BIAS != 0:
        acc = tl.where(acc < 0.0, 0.0, acc)
    tl.store(z_ptr + (row * z_m + column * z_n), acc.to(z_ptr.dtype.element_ty), mask=(row < M) & (column < N))


def _launch(a, b, bias, out, side):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # The longer runs of a store lie along the columns of what the kernel computes.
    x, y, z = (b.T, a.T, out.T) if out.stride(0) < out.stride(1) else (a, b, out)
    if side != NO_BIAS and out.stride(0) < out.stride(1):
        side = ALONG_ROWS
    height, width = z.shape

    def programs(meta):
        return (triton.cdiv(height, meta["ROWS"]) * triton.cdiv(width, meta["COLUMNS"]),)

    product_kernel[programs](
        x, y, z, bias, height, width, K, *x.stride(), *y.stride(), *z.stride(), BIAS=side
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, NO_BIAS)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, ALONG_COLUMNS)
