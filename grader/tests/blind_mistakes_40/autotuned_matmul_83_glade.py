# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In `walk_kernel`, under `if BIAS_RELU`, `right = tl.maximum(right + bias[None, :], 0.0)`: `bias` holds the columns of the left half of the tile, but the right half needs those at `cols + BLOCK_N // 2` (with that mask). matmul_bias_relu is wrong in the right half of every tile, for all N above half the tile's width (16 with the smallest config); matmul is right.
"""Persistent matrix product whose epilogue works on half a tile at a time, to need fewer registers."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264  # two for each SM of an H200


def _config(block_m, block_n, block_k, stages, warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k}, num_stages=stages, num_warps=warps
    )


CONFIGS = [
    _config(128, 128, 64, 4, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
    _config(64, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def _corner(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and column of a tile; eight rows of tiles are walked column by column."""
    wide = tl.cdiv(N, BLOCK_N)
    top = tile // (8 * wide) * 8
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, 8)
    rest = tile % (8 * wide)
    return (top + rest % height) * BLOCK_M, rest // height * BLOCK_N


@triton.jit
def _put(c_ptr, part, rows, cols, M, N, stride_cm, stride_cn):
    """Round part of a tile, and store what lies inside of c."""
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(at, part.to(c_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def walk_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program p has the tiles p, p + programs, p + 2 programs, ... of c = a @ b or relu(a @ b + bias)."""
    ks = tl.arange(0, BLOCK_K)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(axis=0), tiles, tl.num_programs(axis=0)):
        m, n = _corner(tile, M, N, BLOCK_M, BLOCK_N)
        rows = m + tl.arange(0, BLOCK_M).to(tl.int64)
        wide = n + tl.arange(0, BLOCK_N).to(tl.int64)
        a_at = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + wide[None, :] * stride_bn
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            a = tl.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
            b = tl.load(b_at, mask=(ks[:, None] < K - k) & (wide[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_at += BLOCK_K * stride_ak
            b_at += BLOCK_K * stride_bk
        # (BLOCK_M, 2, half) to (BLOCK_M, half, 2): split takes the last axis apart.
        left, right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        cols = n + tl.arange(0, BLOCK_N // 2).to(tl.int64)
        if BIAS_RELU:
            bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
            left = tl.maximum(left + bias[None, :], 0.0)
            right = tl.maximum(right + bias[None, :], 0.0)
        _put(c_ptr, left, rows, cols, M, N, stride_cm, stride_cn)
        _put(c_ptr, right, rows, cols + BLOCK_N // 2, M, N, stride_cm, stride_cn)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (min(PROGRAMS, tiles(meta)),)  # noqa: E731
    walk_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b with fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), added and clamped in fp32."""
    return _launch(a, b, bias, out, bias_relu=True)
