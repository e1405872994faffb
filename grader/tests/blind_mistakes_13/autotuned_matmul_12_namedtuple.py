# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | Without out, `_result` allocates the new matrix with `dtype=torch.float32`, so fp16 and bf16 products come back in fp32; the README asks for the dtype of a: `dtype=a.dtype`.
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import typing

import torch
import triton
import triton.language as tl


class Tile(typing.NamedTuple):
    """Sides of a tile, its depth along K, stages of the pipeline, warps."""

    BLOCK_M: int = 64
    BLOCK_N: int = 64
    BLOCK_K: int = 32
    STAGES: int = 3
    WARPS: int = 4


TILES = [
    Tile(128, 256, 64, 3, 8),
    Tile(256, 128, 64, 3, 8),
    Tile(128, 128, 64, 3, 8),
    Tile(64, 128, 64, 3, 4),
    Tile(),
]
CONFIGS = [
    triton.Config(
        {"BLOCK_M": tile.BLOCK_M, "BLOCK_N": tile.BLOCK_N, "BLOCK_K": tile.BLOCK_K, "GROUP_M": 8},
        num_stages=tile.STAGES,
        num_warps=tile.WARPS,
    )
    for tile in TILES
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    n_down = tl.cdiv(M, BLOCK_M)
    n_right = tl.cdiv(N, BLOCK_N)
    down = (tile // (GROUP_M * n_right)) * GROUP_M
    rest = tile % (GROUP_M * n_right)
    height = tl.minimum(n_down - down, GROUP_M)
    return (down + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    a_rows = a_ptr + rows * stride_am
    b_cols = b_ptr + cols * stride_bn
    row_in = (rows < M)[:, None]
    col_in = (cols < N)[None, :]

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        depth = (first + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_rows[:, None] + (depth * stride_ak)[None, :], mask=row_in & (depth < K)[None, :], other=0.0)
        b = tl.load(b_cols[None, :] + (depth * stride_bk)[:, None], mask=col_in & (depth < K)[:, None], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)

    where = c_ptr + (rows * stride_cm)[:, None] + (cols * stride_cn)[None, :]
    tl.store(where, total.to(c_ptr.dtype.element_ty), mask=row_in & col_in)


def _result(a, b, out):
    """The matrix to write to: the one that was given, or a new one."""
    if out is not None:
        return out
    # the sums of the kernel are fp32
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)


def _launch(a, b, bias, c, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, c, bias, M, N, K, *a.stride(), *b.stride(), *c.stride(), BIAS_RELU=bias_relu)
    return c


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, _result(a, b, out), bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, _result(a, b, out), bias_relu=True)
