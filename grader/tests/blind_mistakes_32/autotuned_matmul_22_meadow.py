# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""A persistent matrix product with one flat loop: all steps along K of all tiles of a program, one after another.

Each program owns a run of neighbouring tiles. The order of the tiles is a snake: odd groups of rows are walked
from right to left, so that the last columns of b of one group are the first of the next.
"""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    shape = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 4}
    return triton.Config(shape, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 64, 4, 4),
    _config(32, 32, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= limit and config.kwargs["BLOCK_N"] <= limit:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile, in the order of a snake."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    within = tile - group * GROUP_M * across
    top = group * GROUP_M
    height = min(down - top, GROUP_M)
    column = within // height
    column = tl.where(group % 2 == 0, column, across - 1 - column)
    return (top + within % height) * BLOCK_M, column * BLOCK_N


@triton.jit
def load_block(base, i, j, stride_i, stride_j, end_i, end_j):
    """Elements (i, j) of a matrix as a block, 0 outside of it."""
    there = (i[:, None] < end_i) & (j[None, :] < end_j)
    spots = base + i.to(tl.int64)[:, None] * stride_i + j.to(tl.int64)[None, :] * stride_j
    return tl.load(spots, mask=there, other=0.0)


@triton.jit
def finish(acc, c_ptr, bias_ptr, i, j, M, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr):
    """Bias, ReLU, one rounding, and the store."""
    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    there = (i[:, None] < M) & (j[None, :] < N)
    spots = c_ptr + i.to(tl.int64)[:, None] * stride_cm + j.to(tl.int64)[None, :] * stride_cn
    tl.store(spots, acc.to(c_ptr.dtype.element_ty), mask=there)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)

    # The first `extra` programs have one tile more than the others.
    share = tiles // programs
    extra = tiles % programs
    tile = pid * share + min(pid, extra)
    after = (pid + 1) * share + min(pid + 1, extra)

    step = 0
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range((after - tile) * steps):
        m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        i = m + tl.arange(0, BLOCK_M)
        j = n + tl.arange(0, BLOCK_N)
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)
        a = load_block(a_ptr, i, k, stride_am, stride_ak, M, K)
        b = load_block(b_ptr, k, j, stride_bk, stride_bn, K, N)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        step += 1
        if step == steps:
            finish(acc, c_ptr, bias_ptr, i, j, M, N, stride_cm, stride_cn, BIAS_RELU)
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            step = 0
            tile += 1


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    workers = torch.cuda.get_device_properties(a.device).multi_processor_count if a.is_cuda else 4

    def grid(meta):
        tiles = triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])
        return (min(tiles, workers),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
