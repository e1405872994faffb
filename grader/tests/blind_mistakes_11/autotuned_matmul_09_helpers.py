# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) place() takes GROUP_M for the height of every group (within % GROUP_M, within // GROUP_M); the last group may be shorter, and its height must be min(tiles_m - first, GROUP_M). Shows where the tile rows are no multiple of 4 and there is more than one tile column: tiles at the right end of the last group stay unwritten. (2) add_bias loads the bias at bias_ptr + tl.arange(0, BLOCK_N) without n, the first column of the tile; must be n + tl.arange. Shows in matmul_bias_relu in all columns behind the first tile.
"""Matrix product out of small helpers."""

import torch
import triton
import triton.language as tl


def _config(m, n, k, stages, warps):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 4}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 32, 4, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """What fits the result; fp32 has no tensor cores and wants small tiles."""
    smallest = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        smallest = min(smallest, 64)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= smallest and c.kwargs["BLOCK_N"] <= smallest]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    group_size = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // group_size) * GROUP_M
    within = tile % group_size
    return (first + within % GROUP_M) * BLOCK_M, (within // GROUP_M) * BLOCK_N


@triton.jit
def block(ptr, i, j, stride_i, stride_j):
    """Pointers to elements (i, j) for a block of rows i and columns j."""
    return ptr + i[:, None].to(tl.int64) * stride_i + j[None, :].to(tl.int64) * stride_j


@triton.jit
def inside(i, j, height, width):
    return (i[:, None] < height) & (j[None, :] < width)


@triton.jit
def add_bias(acc, bias_ptr, n, N, BLOCK_N: tl.constexpr):
    lanes = tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + lanes, mask=n + lanes < N, other=0.0)
    return acc + bias.to(tl.float32)[None, :]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m + tl.arange(0, BLOCK_M)
    j = n + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        a = tl.load(block(a_ptr, i, k, stride_am, stride_ak), mask=inside(i, k, M, K), other=0.0)
        b = tl.load(block(b_ptr, k, j, stride_bk, stride_bn), mask=inside(k, j, K, N), other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.maximum(add_bias(acc, bias_ptr, n, N, BLOCK_N), 0.0)
    tl.store(
        block(c_ptr, i, j, stride_cm, stride_cn), acc.to(c_ptr.dtype.element_ty), mask=inside(i, j, M, N)
    )


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[tiles](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _launch(a, b, bias, out, bias_relu=True)
