# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | matmul splits a long K of a small result among programs: contiguous chunks of K, fp32 parts in a workspace, added in fixed order by a second kernel; a NamedTuple holds the tiles. matmul_bias_relu is one kernel.
"""Matrix product; small results with a long K are computed in parts."""

import typing

import torch
import triton
import triton.language as tl

CHUNK = 1024  # numbers of K in a part, a multiple of each BLOCK_K


class Tile(typing.NamedTuple):
    BLOCK_M: int = 64
    BLOCK_N: int = 64
    BLOCK_K: int = 64
    STAGES: int = 3
    WARPS: int = 4


TILES = [
    Tile(BLOCK_M=128, BLOCK_N=256, WARPS=8),
    Tile(BLOCK_M=256, BLOCK_N=128, WARPS=8),
    Tile(BLOCK_M=128, BLOCK_N=128, WARPS=8),
    Tile(BLOCK_M=64, BLOCK_N=128, STAGES=4),
    Tile(),
]

CONFIGS = [
    triton.Config(
        {"BLOCK_M": t[0], "BLOCK_N": t[1], "BLOCK_K": t[2], "GROUP_M": 8}, num_stages=t[3], num_warps=t[4]
    )
    for t in TILES
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and 64 x 64 for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K", "chunk"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, chunk,
    stride_am, stride_ak, stride_bk, stride_bn, stride_part, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) adds up `chunk` numbers of K at most, from part * chunk on."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = rows[:, None] < M
    col_mask = cols[None, :] < N
    begin = part * chunk
    end = min(begin + chunk, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        far = ks.to(tl.int64)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + far[None, :] * stride_ak,
            mask=row_mask & (ks[None, :] < end),
            other=0.0,
        )
        b = tl.load(
            b_ptr + far[:, None] * stride_bk + cols[None, :] * stride_bn,
            mask=col_mask & (ks[:, None] < end),
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_part + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_mask & col_mask)


@triton.jit
def add_parts_kernel(parts_ptr, c_ptr, N, parts, stride_part, stride_cm, stride_cn, BLOCK: tl.constexpr):
    """One row and BLOCK columns of c: the sum of all parts, first to last."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = (tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = cols < N
    ptrs = parts_ptr + row * N + cols
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(parts):
        total += tl.load(ptrs, mask=inside, other=0.0)
        ptrs += stride_part
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _product(a, b, bias, c, chunk, stride_part, strides, bias_relu):
    (M, K), N = a.shape, b.shape[1]

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return tiles, triton.cdiv(K, chunk)

    matmul_kernel[grid](
        a, b, c, bias, M, N, K, chunk, *a.stride(), *b.stride(), stride_part, *strides, BIAS_RELU=bias_relu
    )


def _result(a, b, out):
    if out is not None:
        return out
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    out = _result(a, b, out)
    (M, N), K = out.shape, a.shape[1]
    parts = triton.cdiv(K, CHUNK)
    if parts < 4 or parts > 256 or M * N > 512 * 512:
        _product(a, b, a, out, K, 0, out.stride(), False)
        return out
    space = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    _product(a, b, a, space, CHUNK, M * N, (N, 1), False)
    add_parts_kernel[(M, triton.cdiv(N, 256))](space, out, N, parts, M * N, *out.stride(), BLOCK=256)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), in one kernel."""
    out = _result(a, b, out)
    _product(a, b, bias, out, a.shape[1], 0, out.stride(), True)
    return out
