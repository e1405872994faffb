# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `matmul_kernel`, `offsets = i[:, None] * c_row + j[None, :] * c_col` is computed in int32 and converted to int64 only afterwards (`offsets.to(tl.int64)`); i and j should be int64 before they meet the strides, as for a and b. Shows only where `out` reaches beyond 2^31 elements with strides below 2^31: tiles are stored to wrapped addresses.
"""Tiles of a matrix product, whole steps along K first and the rest of K last; bias and ReLU where asked."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 64, "BN": 256, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 64, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=4),
    triton.Config({"BM": 32, "BN": 32, "BK": 32, "GROUP": 8}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile: groups of GROUP rows of tiles, each walked column by column."""
    columns = tl.cdiv(N, BN)
    group = tile // (GROUP * columns)
    within = tile % (GROUP * columns)
    height = tl.minimum(tl.cdiv(M, BM) - group * GROUP, GROUP)
    return (group * GROUP + within % height) * BM, (within // height) * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a, b, c, bias, M, N, K, a_row, a_col, b_row, b_col, c_row, c_col, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias), for one BM x BN tile of c."""
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    i = m + tl.arange(0, BM)
    j = n + tl.arange(0, BN)
    k = tl.arange(0, BK)
    inside = (i[:, None] < M) & (j[None, :] < N)
    a_at = a + i.to(tl.int64)[:, None] * a_row + k[None, :] * a_col
    b_at = b + k[:, None] * b_row + j.to(tl.int64)[None, :] * b_col

    acc = tl.zeros((BM, BN), tl.float32)
    whole = K // BK
    for _ in range(whole):
        x = tl.load(a_at, mask=i[:, None] < M, other=0.0)
        y = tl.load(b_at, mask=j[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        a_at += BK * a_col
        b_at += BK * b_row
    rest = K - whole * BK
    if rest > 0:
        x = tl.load(a_at, mask=(i[:, None] < M) & (k[None, :] < rest), other=0.0)
        y = tl.load(b_at, mask=(k[:, None] < rest) & (j[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")

    if EPILOGUE:
        acc += tl.load(bias + j, mask=j < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    offsets = i[:, None] * c_row + j[None, :] * c_col
    tl.store(c + offsets.to(tl.int64), acc.to(c.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype and any strides; fp32 sums, rounded once."""
    # Where there is no epilogue nothing is read through this pointer.
    return _launch(a, b, a, out, epilogue=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, epilogue=True)
