# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `base + (i * i_step).to(tl.int64) + (j * j_step).to(tl.int64)` in `places`: the product is computed in int32 and wraps before it is converted; should be `i.to(tl.int64) * i_step` and `j.to(tl.int64) * j_step`. Shows in both functions only where rows of a, columns of b, or rows or columns of `out` begin beyond 2^31 elements while the stride itself fits int32 (3 x 70 x 150 with rows far apart).
"""Autotuned matrix product: whole blocks along K without a mask of K, then one block for what is left."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TM": 128, "TN": 256, "TK": 64, "WIDTH": 8}, num_stages=3, num_warps=8),
    triton.Config({"TM": 256, "TN": 128, "TK": 64, "WIDTH": 8}, num_stages=3, num_warps=8),
    triton.Config({"TM": 128, "TN": 128, "TK": 64, "WIDTH": 8}, num_stages=3, num_warps=8),
    triton.Config({"TM": 64, "TN": 128, "TK": 32, "WIDTH": 8}, num_stages=4, num_warps=4),
    triton.Config({"TM": 64, "TN": 64, "TK": 32, "WIDTH": 8}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Large tiles only for results as large, and for 16-bit numbers."""
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["TM"], c.kwargs["TN"]) <= size]
    return kept or configs[-1:]


@triton.jit
def places(base, i, j, i_step, j_step):
    """Pointers to the elements (i, j) of a matrix; the offsets are int64, as rows may lie far apart."""
    return base + (i * i_step).to(tl.int64) + (j * j_step).to(tl.int64)


@triton.jit
def by_columns(tile, tiles_m, tiles_n, WIDTH: tl.constexpr):
    """Tile row and tile column: WIDTH columns of tiles are walked row by row, then the next ones."""
    strip = tile // (WIDTH * tiles_m)
    within = tile % (WIDTH * tiles_m)
    width = tl.minimum(tiles_n - strip * WIDTH, WIDTH)
    return within // width, strip * WIDTH + within % width


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BIAS_RELU: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, col = by_columns(tl.program_id(0), tl.cdiv(M, TM), tl.cdiv(N, TN), WIDTH)
    i = (row * TM + tl.arange(0, TM))[:, None]
    j = (col * TN + tl.arange(0, TN))[None, :]
    ka = tl.arange(0, TK)[None, :]
    kb = tl.arange(0, TK)[:, None]
    a_ptrs = places(a_ptr, i, ka, am, ak)
    b_ptrs = places(b_ptr, kb, j, bk, bn)

    acc = tl.zeros((TM, TN), tl.float32)
    whole = K // TK * TK
    for _ in range(0, whole, TK):
        a = tl.load(a_ptrs, mask=i < M, other=0.0)
        b = tl.load(b_ptrs, mask=j < N, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += TK * ak
        b_ptrs += TK * bk
    if whole < K:
        a = tl.load(a_ptrs, mask=(i < M) & (ka < K - whole), other=0.0)
        b = tl.load(b_ptrs, mask=(kb < K - whole) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(places(c_ptr, i, j, cm, cn), acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    tile_kernel[lambda meta: (triton.cdiv(M, meta["TM"]) * triton.cdiv(N, meta["TN"]),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once, in `out` if there is one."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), bias one value for each column."""
    return _launch(a, b, bias, out, True)
