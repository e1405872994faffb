# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | in matmul_kernel the first block of K is multiplied before the loop, but the pointers are not moved on between it and the loop (they move at the end of each turn only), so each turn of the loop reads one block too early: block 0 counts twice and the last block is missing (its tail mask meets the block before). Wrong in both functions for every K above BLOCK_K; a_ptrs and b_ptrs must advance by BLOCK_K strides before the loads of each turn.
"""Matrix product in tiles: the first block of K starts the sum, a loop adds the others."""

import torch
import triton
import triton.language as tl

SHAPES = (
    # rows, columns, depth, stages, warps
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 64, 64, 3, 4),
    (64, 64, 32, 4, 4),
)


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = dict(BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=8)
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [_config(*shape) for shape in SHAPES]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Groups of GROUP_M rows of tiles; within a group the row changes fastest."""
    per_row = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * per_row
    first = (tile // per_group) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    rest = tile % per_group
    return (first + rest % height) * BLOCK_M, (rest // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias)."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ka = tl.arange(0, BLOCK_K)[None, :]
    kb = tl.arange(0, BLOCK_K)[:, None]
    a_ptrs = a_ptr + i * stride_am + ka * stride_ak
    b_ptrs = b_ptr + kb * stride_bk + j * stride_bn

    # K is at least 1, so there is a first block, and no tile of zeros is needed.
    a_first = tl.load(a_ptrs, mask=(i < M) & (ka < K), other=0.0)
    b_first = tl.load(b_ptrs, mask=(kb < K) & (j < N), other=0.0)
    acc = tl.dot(a_first, b_first, input_precision="ieee", out_dtype=tl.float32)
    for k in range(BLOCK_K, K, BLOCK_K):
        a_block = tl.load(a_ptrs, mask=(i < M) & (ka < K - k), other=0.0)
        b_block = tl.load(b_ptrs, mask=(kb < K - k) & (j < N), other=0.0)
        acc = tl.dot(a_block, b_block, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j < N, other=0.0)
        acc = tl.maximum(acc + bias.to(tl.float32), 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    grid = lambda meta: (tiles(meta),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for one dtype and any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
