# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Persistent matrix product: each program takes a run of tiles, which lie like the rows of a ploughed field."""

import torch
import triton
import triton.language as tl

PROGRAMS = 264

CONFIGS = [
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 128
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, across):
    """Row and column of a tile: left to right in even rows of tiles, right to left in odd ones."""
    row = tile // across
    along = tile % across
    return row, along + (row % 2) * (across - 1 - 2 * along)


@triton.jit
def numbers(start, size, BLOCK: tl.constexpr):
    """The BLOCK numbers from start on, for any stride, and which of them are below size."""
    index = (start + tl.arange(0, BLOCK)).to(tl.int64)
    return index, index < size


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def field_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    run = tl.cdiv(tiles, tl.num_programs(0))
    first = tl.program_id(0) * run
    last = tl.minimum(first + run, tiles)
    whole = K // BK
    rest = K % BK
    lane = tl.arange(0, BK)
    ks = lane.to(tl.int64)

    for tile in range(first, last):
        row, col = place(tile, across)
        i, i_in = numbers(row * BM, M, BM)
        j, j_in = numbers(col * BN, N, BN)
        a_at = a_ptr + i[:, None] * stride_am + ks[None, :] * stride_ak
        b_at = b_ptr + ks[:, None] * stride_bk + j[None, :] * stride_bn

        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(whole):
            a = tl.load(a_at, mask=i_in[:, None], other=0.0)
            b = tl.load(b_at, mask=j_in[None, :], other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
            a_at += BK * stride_ak
            b_at += BK * stride_bk
        if rest > 0:
            a_rest = tl.load(a_at, mask=i_in[:, None] & (lane < rest)[None, :], other=0.0)
            b_rest = tl.load(b_at, mask=(lane < rest)[:, None] & j_in[None, :], other=0.0)
            acc = tl.dot(a_rest, b_rest, acc, input_precision="ieee")

        if BIAS_RELU:
            acc += tl.load(bias_ptr + j, mask=j_in, other=0.0).to(tl.float32)[None, :]
            acc = tl.where(acc < 0.0, 0.0, acc)
        c_at = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
        tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=i_in[:, None] & j_in[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))

    def programs(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)

    field_kernel[programs](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
