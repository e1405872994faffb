# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel (so in both functions) the loop along K fetches the next tiles before it multiplies the present ones, but multiplies tl.dot(a_now, b_next, acc): each tile of a meets the tile of b of the step after it, and the last one meets zeros. Wrong in every case; all products are 0 where K <= BLOCK_K. Should be tl.dot(a_now, b_now, acc).
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


# The tiles in flight take registers of their own here, so none is larger than 128 x 128.
CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 128, 32, 4, 8),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 3, 4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    down = tl.cdiv(M, BLOCK_M)
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    top = group * GROUP_M
    inside = tile - group * (GROUP_M * across)
    height = min(GROUP_M, down - top)
    return (top + inside % height) * BLOCK_M, (inside // height) * BLOCK_N


@triton.jit
def fetch(ptr, i, j, stride_i, stride_j, end_i, end_j):
    """The elements (i, j) of a matrix, 0 where it has none; i is a column of numbers, j a row."""
    return tl.load(ptr + i * stride_i + j * stride_j, mask=(i < end_i) & (j < end_j), other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = m.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
    j = n.to(tl.int64) + tl.arange(0, BLOCK_N)[None, :]
    ks = tl.arange(0, BLOCK_K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a_now = fetch(a_ptr, i, ks[None, :], stride_am, stride_ak, M, K)
    b_now = fetch(b_ptr, ks[:, None], j, stride_bk, stride_bn, K, N)
    # k is where the next tiles begin; past K they are zeros and nothing is read.
    for k in range(BLOCK_K, K + BLOCK_K, BLOCK_K):
        a_next = fetch(a_ptr, i, k + ks[None, :], stride_am, stride_ak, M, K)
        b_next = fetch(b_ptr, k + ks[:, None], j, stride_bk, stride_bn, K, N)
        acc = tl.dot(a_now, b_next, acc, input_precision="ieee")
        a_now = a_next
        b_now = b_next

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)

    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
