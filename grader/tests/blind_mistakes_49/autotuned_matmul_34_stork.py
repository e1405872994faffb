# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `_compute`, where `out.stride(0) < out.stride(1)` the transposed product b.T @ a.T is computed, but `tile_kernel` still adds the bias along its columns (`tl.load(bias_ptr + cols, mask=cols < COLS, other=0.0)`, `sums + bias[None, :]`), which are the rows of out then; there it should be `bias[:, None]` loaded by `rows` below ROWS. Shows in matmul_bias_relu with a transposed (column by column) `out` only; where M > N it also reads past the end of the bias. matmul is right.
"""Matrix product with an epilogue; results that lie column by column are computed as (b.T @ a.T).T."""

import torch
import triton
import triton.language as tl

#        rows cols  k stages warps
TILES = ((128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 4, 8), (64, 128, 64, 4, 4), (64, 64, 32, 4, 4))
CONFIGS = [
    triton.Config({"BM": m, "BN": n, "BK": k}, num_stages=stages, num_warps=warps)
    for m, n, k, stages, warps in TILES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and 64 x 64 for fp32, which has no tensor cores."""
    widest = 64 if named_args["left_ptr"].dtype == torch.float32 else 256
    widest = min(widest, named_args["ROWS"], named_args["COLS"])
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= widest] or configs[-1:]


@triton.jit
def place(tile, ROWS, COLS, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile; GROUP rows of tiles are walked column by column."""
    high = tl.cdiv(ROWS, BM)
    wide = tl.cdiv(COLS, BN)
    top = tile // (GROUP * wide) * GROUP
    height = min(high - top, GROUP)
    rest = tile - top * wide
    return (top + rest % height) * BM, rest // height * BN


@triton.jit
def walk_k(left_ptrs, right_ptrs, row_ok, col_ok, K, step_left, step_right,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """The fp32 sums of one tile."""
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    ks = tl.arange(0, BK)
    for k in range(0, K, BK):
        left = tl.load(left_ptrs, mask=row_ok & (ks[None, :] < K - k), other=0.0)
        right = tl.load(right_ptrs, mask=col_ok & (ks[:, None] < K - k), other=0.0)
        sums = tl.dot(left, right, sums, input_precision="ieee")
        left_ptrs += BK * step_left
        right_ptrs += BK * step_right
    return sums


@triton.autotune(configs=CONFIGS, key=["ROWS", "COLS", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tile_kernel(
    left_ptr, right_ptr, out_ptr, bias_ptr, ROWS, COLS, K,
    left_row, left_k, right_k, right_col, out_row, out_col, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """out = left @ right, a tile for each program, with bias and ReLU where BIAS_RELU."""
    top, first = place(tl.program_id(0), ROWS, COLS, BM, BN, 8)
    rows = (top + tl.arange(0, BM)).to(tl.int64)
    cols = (first + tl.arange(0, BN)).to(tl.int64)
    row_ok = (rows < ROWS)[:, None]
    col_ok = (cols < COLS)[None, :]
    ks = tl.arange(0, BK)
    left_ptrs = left_ptr + rows[:, None] * left_row + ks[None, :] * left_k
    right_ptrs = right_ptr + ks[:, None] * right_k + cols[None, :] * right_col
    sums = walk_k(left_ptrs, right_ptrs, row_ok, col_ok, K, left_k, right_k, BM, BN, BK)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < COLS, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias[None, :], 0.0)
    out_ptrs = out_ptr + rows[:, None] * out_row + cols[None, :] * out_col
    tl.store(out_ptrs, sums.to(out_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _compute(a, b, bias, out, bias_relu):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    left, right, target = a, b, out
    if out.stride(0) < out.stride(1):
        # The columns of out are side by side: its transpose has the wide stores.
        left, right, target = b.T, a.T, out.T
    ROWS, COLS = target.shape
    K = left.shape[1]
    grid = lambda meta: (triton.cdiv(ROWS, meta["BM"]) * triton.cdiv(COLS, meta["BN"]),)  # noqa: E731
    tile_kernel[grid](
        left, right, target, bias, ROWS, COLS, K,
        left.stride(0), left.stride(1), right.stride(0), right.stride(1), target.stride(0), target.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _compute(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _compute(a, b, bias, out, bias_relu=True)
