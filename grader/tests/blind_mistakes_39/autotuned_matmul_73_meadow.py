# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) In matmul_kernel the loop over the full steps is range(0, K - BLOCK_K, BLOCK_K): where K is a multiple of BLOCK_K the last full block of K is skipped, and the peeled tail does not run as K % BLOCK_K is 0, so these products are missing (all zero sums where K = BLOCK_K); both functions, K a multiple of BLOCK_K (64, or 32 in the smallest config); it should be range(0, K - BLOCK_K + 1, BLOCK_K). (2) In the epilogue tl.where(acc > 0, acc + bias, 0) decides by the sum before the bias: negative sums with a larger bias become 0, positive sums with a more negative bias stay negative; matmul_bias_relu, every size; it should be tl.maximum(acc + bias, 0).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl

#          M    N    K  stages warps
SHAPES = (
    (128, 256, 64, 3, 8),
    (256, 128, 64, 3, 8),
    (128, 256, 64, 4, 8),
    (128, 128, 64, 3, 8),
    (64, 64, 64, 4, 4),
    (32, 32, 32, 4, 4),
)
CONFIGS = [
    triton.Config(
        {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": 8}, num_stages=stages, num_warps=warps
    )
    for bm, bn, bk, stages, warps in SHAPES
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
    across = tl.cdiv(N, BLOCK_N)
    down = tl.cdiv(M, BLOCK_M)
    first = (tile // (across * GROUP_M)) * GROUP_M
    height = tl.minimum(down - first, GROUP_M)
    within = tile - first * across
    column = within // height
    row = first + within - column * height
    return row * BLOCK_M, column * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias): full steps along K need no mask of K, so only the tail has one."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M))[:, None].to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_tile = a_ptr + i * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + j * stride_bn + ks[:, None] * stride_bk
    i_ok = i < M
    j_ok = j < N

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K - BLOCK_K, BLOCK_K):
        a = tl.load(a_tile, mask=i_ok, other=0.0)
        b = tl.load(b_tile, mask=j_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    rest = K % BLOCK_K
    if rest > 0:
        a = tl.load(a_tile, mask=i_ok & (ks[None, :] < rest), other=0.0)
        b = tl.load(b_tile, mask=j_ok & (ks[:, None] < rest), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + j, mask=j_ok, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0.0, acc + bias, 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=i_ok & j_ok)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    tiles = lambda meta: triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"])  # noqa: E731
    matmul_kernel[lambda meta: (tiles(meta),)](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
