# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product, upside down.

The tiles are those of c.T = b.T @ a.T, K is walked from its end to its beginning, so that only the first block
needs a mask along K, and the tiles are taken along diagonals of c.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    """One candidate: tile sizes, depth of the pipeline, warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 32, 4, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(128, 64, 32, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and first column of a tile. Tile row r takes the columns d + r, modulo their number, for d = 0, 1, ..."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    row = tile % tiles_m
    col = (tile // tiles_m + row) % tiles_n
    return row * BLOCK_M, col * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); each program owns one tile of c and keeps it transposed."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N)
    # In all blocks below, columns of c go down and rows of c go across.
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    row_ok = rows < M
    col_ok = cols < N
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn

    # The last block of K, full or not.
    blocks = tl.cdiv(K, BLOCK_K)
    ks = ((blocks - 1) * BLOCK_K + tl.arange(0, BLOCK_K)).to(tl.int64)
    b = tl.load(b_cols + ks[None, :] * stride_bk, mask=col_ok & (ks[None, :] < K), other=0.0)
    a = tl.load(a_rows + ks[:, None] * stride_ak, mask=row_ok & (ks[:, None] < K), other=0.0)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    acc = tl.dot(b, a, acc, input_precision="ieee")

    # All others are full.
    for _ in range(0, blocks - 1):
        ks -= BLOCK_K
        b = tl.load(b_cols + ks[None, :] * stride_bk, mask=col_ok, other=0.0)
        a = tl.load(a_rows + ks[:, None] * stride_ak, mask=row_ok, other=0.0)
        acc = tl.dot(b, a, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[lambda meta: (tiles(meta),)](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
