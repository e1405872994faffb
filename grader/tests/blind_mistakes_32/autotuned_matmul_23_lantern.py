# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | _launch allocates the partial sums of the split along K as torch.empty((pieces, M, N), ..., dtype=a.dtype), so for fp16 and bf16 each partial sum is rounded before the pieces and the bias are added; digits are lost in 16-bit dtypes only, most clearly where the sums are whole numbers and must agree in every bit (fp16, 128 x 128 x 128 and 129 x 127 x 200, both functions); fp32 is right; should be dtype=torch.float32
"""Matrix product with K split into pieces: one kernel for the partial sums, one that adds them up and finishes."""

import torch
import triton
import triton.language as tl

MOST_PIECES = 4
ROWS, COLS = 16, 128


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 64, 64, 3, 4),
    _config(32, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tile_rows = tl.cdiv(M, BLOCK_M)
    group_size = GROUP_M * tl.cdiv(N, BLOCK_N)
    group = tile // group_size
    rows_here = min(tile_rows - group * GROUP_M, GROUP_M)
    rest = tile - group * group_size
    return (group * GROUP_M + rest % rows_here) * BLOCK_M, (rest // rows_here) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_pp, stride_pm, PIECES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """part[piece] = the products of one piece of K; axis 0 counts tiles, axis 1 pieces."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    piece = tl.program_id(axis=1)
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    row_there = rows[:, None] < M
    col_there = cols[None, :] < N
    rows_far = rows.to(tl.int64)[:, None]
    cols_far = cols.to(tl.int64)[None, :]

    # A piece is a whole number of steps; the last one may be shorter, or empty.
    length = tl.cdiv(tl.cdiv(K, BLOCK_K), PIECES) * BLOCK_K
    start = piece * length
    stop = min(start + length, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(start, stop, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        ks_far = ks.to(tl.int64)
        a = tl.load(
            a_ptr + rows_far * stride_am + ks_far[None, :] * stride_ak,
            mask=row_there & (ks[None, :] < K), other=0.0,
        )  # fmt: skip
        b = tl.load(
            b_ptr + ks_far[:, None] * stride_bk + cols_far * stride_bn,
            mask=(ks[:, None] < K) & col_there, other=0.0,
        )  # fmt: skip
        acc = tl.dot(a, b, acc, input_precision="ieee")

    spots = part_ptr + piece.to(tl.int64) * stride_pp + rows_far * stride_pm + cols_far
    tl.store(spots, acc.to(part_ptr.dtype.element_ty), mask=row_there & col_there)


@triton.jit
def finish_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_pp, stride_pm, stride_cm, stride_cn,
    PIECES: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of all pieces, with bias and ReLU where they are asked for."""
    rows = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    there = (rows[:, None] < M) & (cols[None, :] < N)
    rows_far = rows.to(tl.int64)[:, None]
    cols_far = cols.to(tl.int64)[None, :]

    total = tl.zeros((ROWS, COLS), tl.float32)
    spots = part_ptr + rows_far * stride_pm + cols_far
    for _ in range(PIECES):
        total += tl.load(spots, mask=there, other=0.0).to(tl.float32)
        spots += stride_pp
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    tl.store(
        c_ptr + rows_far * stride_cm + cols_far * stride_cn, total.to(c_ptr.dtype.element_ty), mask=there
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    pieces = min(MOST_PIECES, triton.cdiv(K, 64))
    part = torch.empty((pieces, M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta), pieces)](
        a, b, part, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), part.stride(0), part.stride(1),
        PIECES=pieces,
    )  # fmt: skip
    finish_kernel[(triton.cdiv(M, ROWS), triton.cdiv(N, COLS))](
        part, out, bias, M, N, part.stride(0), part.stride(1), out.stride(0), out.stride(1),
        PIECES=pieces, BIAS_RELU=bias_relu, ROWS=ROWS, COLS=COLS,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
