# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In load_tile, which matmul and matmul_bias_relu share, the mask of the second axis is cols <= n_cols instead of cols < n_cols: where BLOCK_K does not divide K the tile of a has one column past K (NaN from outside, NaN times 0), and b is read one column past N.
"""Matrix product with an autotuned tile. All loads go through load_tile."""

import torch
import triton
import triton.language as tl


def _c(bm, bn, bk, gm, s, w):
    return triton.Config(dict(BM=bm, BN=bn, BK=bk, GM=gm), num_stages=s, num_warps=w)


TILES = [
    _c(128, 256, 64, 8, 3, 8),
    _c(256, 128, 64, 4, 3, 8),
    _c(128, 128, 64, 8, 4, 8),
    _c(64, 128, 32, 8, 4, 4),
    _c(32, 64, 64, 8, 3, 4),
    _c(64, 64, 32, 8, 3, 4),
]


def keep(configs, named_args, **kwargs):
    M, N = named_args["M"], named_args["N"]
    fp32 = named_args["A"].dtype == torch.float32
    good = [
        c
        for c in configs
        if c.kwargs["BM"] <= max(M, 16) and c.kwargs["BN"] <= max(N, 16) and (not fp32 or c.kwargs["BM"] + c.kwargs["BN"] <= 128)
    ]
    return good or configs[-1:]


@triton.jit
def load_tile(base, rows, cols, n_rows, n_cols, stride_r, stride_c):
    """The block of a matrix at these row and column numbers, 0 where it has ended."""
    inside = (rows[:, None] < n_rows) & (cols[None, :] <= n_cols)
    return tl.load(base + rows[:, None] * stride_r + cols[None, :] * stride_c, mask=inside, other=0.0)


@triton.jit
def tile_origin(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GM: tl.constexpr):
    rows_of_tiles = tl.cdiv(M, BM)
    cols_of_tiles = tl.cdiv(N, BN)
    group = pid // (GM * cols_of_tiles)
    top = group * GM
    tall = tl.minimum(rows_of_tiles - top, GM)
    inner = pid - group * GM * cols_of_tiles
    return (top + inner % tall) * BM, (inner // tall) * BN


@triton.jit
def accumulate(A, B, rows, cols, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        ks = start + tl.arange(0, BK).to(tl.int64)
        a = load_tile(A, rows, ks, M, K, sam, sak)
        b = load_tile(B, ks, cols, K, N, sbk, sbn)
        sums = tl.dot(a, b, sums, input_precision="ieee")
    return sums


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": keep})
@triton.jit
def plain_kernel(
    A, B, C, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
):  # fmt: skip
    m, n = tile_origin(tl.program_id(0), M, N, BM, BN, GM)
    rows = m.to(tl.int64) + tl.arange(0, BM)
    cols = n.to(tl.int64) + tl.arange(0, BN)
    sums = accumulate(A, B, rows, cols, M, N, K, sam, sak, sbk, sbn, BM, BN, BK)
    where = C + rows[:, None] * scm + cols[None, :] * scn
    tl.store(where, sums.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": keep})
@triton.jit
def bias_relu_kernel(
    A, B, BIAS, C, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GM: tl.constexpr,
):  # fmt: skip
    m, n = tile_origin(tl.program_id(0), M, N, BM, BN, GM)
    rows = m.to(tl.int64) + tl.arange(0, BM)
    cols = n.to(tl.int64) + tl.arange(0, BN)
    sums = accumulate(A, B, rows, cols, M, N, K, sam, sak, sbk, sbn, BM, BN, BK)
    bias = tl.load(BIAS + cols, mask=cols < N, other=0.0).to(tl.float32)
    sums = tl.maximum(sums + bias[None, :], 0.0)
    where = C + rows[:, None] * scm + cols[None, :] * scn
    tl.store(where, sums.to(C.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _grid(M, N):
    return lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)


def _result(a, b, out):
    return out if out is not None else torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    c = _result(a, b, out)
    (M, K), N = a.shape, b.shape[1]
    plain_kernel[_grid(M, N)](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    c = _result(a, b, out)
    (M, K), N = a.shape, b.shape[1]
    bias_relu_kernel[_grid(M, N)](a, b, bias, c, M, N, K, *a.stride(), *b.stride(), *c.stride())
    return c
