# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | in `partial_products` both masks along K compare with the whole K (`at[None, :] < K`, `at[:, None] < K`) and not with `stop`, the end of the program's own part of K: the last block of a part reaches into the next part, whose first products are counted twice; shows only where K is split (K >= 128 and at most 512 * 512 results) and cdiv(K, parts) is not a multiple of BK, as K = 129, 150, 200, 257, in both functions; it should be `< stop` in both masks
"""Matrix product whose K is shared among programs where the result is small.

With one part a program finishes its tile by itself. With several, each part leaves fp32 sums in a workspace of
shape (parts, M, N), and a second kernel adds them, with bias and ReLU at that moment.
"""

import torch
import triton
import triton.language as tl

SHORTEST_PART = 64
MOST_PARTS = 8


def _shape(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)


SHAPES = [
    _shape(128, 256, 64, 3, 8),
    _shape(256, 128, 64, 3, 8),
    _shape(128, 128, 64, 3, 8),
    _shape(64, 128, 64, 4, 4),
    _shape(64, 64, 32, 3, 4),
]


def worth_a_try(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    chosen = [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit]
    return chosen if chosen else configs[-1:]


@triton.jit
def corner_of(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile; groups of GROUP tile rows are walked column by column."""
    down = tl.cdiv(M, BM)
    across = tl.cdiv(N, BN)
    top = tile // (GROUP * across) * GROUP
    height = min(down - top, GROUP)
    rest = tile % (GROUP * across)
    return (top + rest % height) * BM, (rest // height) * BN


@triton.autotune(configs=SHAPES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": worth_a_try})
@triton.jit
def partial_products(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, length,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    FUSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) sums the products of k in [part * length, part * length + length)."""
    row0, col0 = corner_of(tl.program_id(0), M, N, BM, BN, GROUP)
    part = tl.program_id(1)
    start = part * length
    stop = min(start + length, K)

    rows = (row0 + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (col0 + tl.arange(0, BN)).to(tl.int64)[None, :]
    lanes = tl.arange(0, BK)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(start, stop, BK):
        at = (k + lanes).to(tl.int64)
        a = tl.load(
            a_ptr + rows * stride_am + at[None, :] * stride_ak, mask=(rows < M) & (at[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + at[:, None] * stride_bk + cols * stride_bn, mask=(at[:, None] < K) & (cols < N), other=0.0
        )
        sums = tl.dot(a, b, sums, input_precision="ieee")

    if FUSED:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        sums = tl.maximum(sums + bias, 0.0)
    c_tile = c_ptr + part.to(tl.int64) * stride_cp + rows * stride_cm + cols * stride_cn
    tl.store(c_tile, sums.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_parts(
    work_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    PARTS: tl.constexpr, FUSED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum over the first axis of the workspace, then the epilogue."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = at // N
    col = at % N
    inside = row < M
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(work_ptr + part * M * N + at, mask=inside, other=0.0)
    if FUSED:
        total += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def parts_of(M, N, K):
    """More than one part only where a few tiles would leave most of the GPU idle."""
    if M * N > 512 * 512:
        return 1
    return max(1, min(MOST_PARTS, K // SHORTEST_PART))


def _product(a, b, bias, out, fused):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    parts = parts_of(M, N, K)
    length = triton.cdiv(K, parts)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), parts)  # noqa: E731

    if parts == 1:
        partial_products[grid](
            a, b, out, bias, M, N, K, length, *a.stride(), *b.stride(), 0, *out.stride(), FUSED=fused
        )
        return out

    work = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    partial_products[grid](
        a, b, work, bias, M, N, K, length, *a.stride(), *b.stride(), *work.stride(), FUSED=False
    )
    block = 512
    add_parts[(triton.cdiv(M * N, block),)](
        work, out, bias, M, N, *out.stride(), PARTS=parts, FUSED=fused, BLOCK=block
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, summed in fp32 and rounded once."""
    return _product(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _product(a, b, bias, out, fused=True)
