# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Persistent programs; the fp32 sums begin with the bias, K is walked from its last step to the first, and the tile is stored in two halves (reshape, permute, split).
"""Persistent matrix product: sums begin with the bias, K is walked from its end, tiles are stored in two halves."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264


def _config(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k},
        num_stages=num_stages,
        num_warps=num_warps,
    )


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(128, 64, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of tiles of one tile; GROUP rows of tiles are walked column by column."""
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    within = tile - first * tiles_n
    return first + within % height, within // height


@triton.jit
def store_half(half, c_ptr, rows, cols, M, N, stride_cm, stride_cn, RELU: tl.constexpr):
    """Clamp one half of a tile, round it, and store it."""
    if RELU:
        half = tl.maximum(half, 0.0)
    inside = (rows < M)[:, None] & (cols < N)[None, :]
    c_ptrs = c_ptr + (rows * stride_cm)[:, None] + (cols * stride_cn)[None, :]
    tl.store(c_ptrs, half.to(c_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(bias + a @ b); a program takes every tile whose number is its own, modulo the programs."""
    HALF: tl.constexpr = BLOCK_N // 2
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    for tile in tl.range(tl.program_id(axis=0), tiles_m * tiles_n, tl.num_programs(axis=0)):
        i, j = place(tile, tiles_m, tiles_n, 8)
        rows = (i * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
        cols = (j * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
        a_rows = a_ptr + (rows * stride_am)[:, None]
        b_cols = b_ptr + (cols * stride_bn)[None, :]
        row_ok = (rows < M)[:, None]
        col_ok = (cols < N)[None, :]

        sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if BIAS_RELU:
            sums += tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)[None, :]
        for step in tl.range(0, steps):
            ks = (steps - 1 - step) * BLOCK_K + tl.arange(0, BLOCK_K)
            a = tl.load(a_rows + (ks * stride_ak)[None, :], mask=row_ok & (ks < K)[None, :], other=0.0)
            b = tl.load(b_cols + (ks * stride_bk)[:, None], mask=col_ok & (ks < K)[:, None], other=0.0)
            sums = tl.dot(a, b, sums, input_precision="ieee")

        halves = tl.permute(tl.reshape(sums, (BLOCK_M, 2, HALF)), (0, 2, 1))
        left, right = tl.split(halves)
        half_cols = (j * BLOCK_N + tl.arange(0, HALF)).to(tl.int64)
        store_half(left, c_ptr, rows, half_cols, M, N, stride_cm, stride_cn, BIAS_RELU)
        store_half(right, c_ptr, rows, half_cols + HALF, M, N, stride_cm, stride_cn, BIAS_RELU)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    programs = lambda meta: (min(PROGRAMS, tiles(meta)),)  # noqa: E731
    persistent_kernel[programs](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
