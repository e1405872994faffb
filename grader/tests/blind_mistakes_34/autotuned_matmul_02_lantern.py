# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | matmul_kernel, loop along K: `ks = start + lane` is the absolute index along K, but it is compared with what is left, `inside = ks < K - start`; so from the second step on the bound shrinks twice, and about the second half of K is dropped. Wrong for every K > BLOCK_K (32 or 64) in both functions, right for a single step. Should be ks < K (or lane < K - start)
"""Matrix product: every step along K computes its addresses anew from 64-bit indices."""

import torch
import triton
import triton.language as tl


def _candidates():
    wide = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}
    tall = {"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64}
    square = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}
    small = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    return [
        triton.Config({**wide, "GROUP_M": 8}, num_stages=3, num_warps=8),
        triton.Config({**tall, "GROUP_M": 8}, num_stages=3, num_warps=8),
        triton.Config({**square, "GROUP_M": 8}, num_stages=3, num_warps=8),
        triton.Config({**square, "GROUP_M": 4}, num_stages=4, num_warps=8),
        triton.Config({**small, "GROUP_M": 8}, num_stages=4, num_warps=4),
    ]


CONFIGS = _candidates()


def fitting(configs, named_args, **kwargs):
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = []
    for config in configs:
        if config.kwargs["BLOCK_M"] <= size and config.kwargs["BLOCK_N"] <= size:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of the tile."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = tile // per_group * GROUP_M
    height = tl.minimum(GROUP_M, tiles_m - first)
    rest = tile % per_group
    return (first + rest % height) * BLOCK_M, rest // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m + tl.arange(0, BLOCK_M).to(tl.int64)
    j = n + tl.arange(0, BLOCK_N).to(tl.int64)
    lane = tl.arange(0, BLOCK_K).to(tl.int64)
    row_of_a = a_ptr + i[:, None] * stride_am
    col_of_b = b_ptr + j[None, :] * stride_bn
    row_ok = i < M
    col_ok = j < N

    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + lane
        inside = ks < K - start
        a = tl.load(row_of_a + ks[None, :] * stride_ak, mask=row_ok[:, None] & inside[None, :], other=0.0)
        b = tl.load(col_of_b + ks[:, None] * stride_bk, mask=inside[:, None] & col_ok[None, :], other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")

    if BIAS_RELU:
        total += tl.load(bias_ptr + j, mask=col_ok, other=0.0).to(tl.float32)[None, :]
        total = tl.where(total > 0.0, total, 0.0)

    target = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    tl.store(target, total.to(c_ptr.dtype.element_ty), mask=row_ok[:, None] & col_ok[None, :])


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.size(1)
    if out is None:
        out = a.new_empty((M, N))

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, True)
