# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `lanes`, `tl.arange(0, ROWS)[:, None] * stride_r + tl.arange(0, COLS)[None, :] * stride_c` is int32: only the first element of a tile is addressed in int64. Where rows of A, columns of B or elements of out within one tile lie beyond 2^31 elements from its first one, e.g. 3 rows with a stride of a little more than 2^30, the offset wraps. Both aranges must be `.to(tl.int64)`. All other cases are right.
"""Autotuned matrix product; a tile is an address of its first element plus the offsets of its lanes."""

import typing

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS: typing.List = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c, int64: the matrices may be large."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    m = (first + within % height) * BLOCK_M
    n = within // height * BLOCK_N
    return m.to(tl.int64), n.to(tl.int64)


@triton.jit
def lanes(stride_r, stride_c, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Offsets of the elements of a tile from its first one."""
    return tl.arange(0, ROWS)[:, None] * stride_r + tl.arange(0, COLS)[None, :] * stride_c


@triton.jit
def inside(height, width, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The lanes of a tile of which height rows and width columns exist."""
    return (tl.arange(0, ROWS)[:, None] < height) & (tl.arange(0, COLS)[None, :] < width)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    height = M - m
    width = N - n
    a_tile = a_ptr + m * stride_am
    b_tile = b_ptr + n * stride_bn
    a_lanes = lanes(stride_am, stride_ak, BLOCK_M, BLOCK_K)
    b_lanes = lanes(stride_bk, stride_bn, BLOCK_K, BLOCK_N)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_tile + a_lanes, mask=inside(height, K - k, BLOCK_M, BLOCK_K), other=0.0)
        b = tl.load(b_tile + b_lanes, mask=inside(K - k, width, BLOCK_K, BLOCK_N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    if BIAS_RELU:
        j = tl.arange(0, BLOCK_N)
        bias = tl.load(bias_ptr + n + j, mask=j < width, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)

    c_tile = c_ptr + m * stride_cm + n * stride_cn
    c_lanes = lanes(stride_cm, stride_cn, BLOCK_M, BLOCK_N)
    tl.store(c_tile + c_lanes, acc.to(c_ptr.dtype.element_ty), mask=inside(height, width, BLOCK_M, BLOCK_N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    return _launch(a, b, bias, out, bias_relu=True)
