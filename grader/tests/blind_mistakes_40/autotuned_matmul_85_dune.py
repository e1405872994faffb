# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | The host passes one stride of b, `ldb = b.stride(1) if transposed else b.stride(0)`, and `matmul_kernel` takes the other one as 1: `b_ptrs = b_ptr + kb * ldb + j` (and `b_ptr + j * ldb + kb`). It should use both strides of b, as for a and c. Wrong only where neither stride of b is 1, as for every second column of a wider matrix; both functions.
"""Matrix product, autotuned, with one kernel for B stored as (K, N) and as (N, K)."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 256, "BK": 32, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result; 64 x 64 for fp32."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile; GROUP rows of tiles are walked column by column."""
    wide = tl.cdiv(N, BN)
    start = tile // (GROUP * wide) * GROUP
    high = tl.minimum(tl.cdiv(M, BM) - start, GROUP)
    left = tile % (GROUP * wide)
    return (start + left % high) * BM, left // high * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "B_T"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, ldb, stride_cm, stride_cn, B_T: tl.constexpr, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """One tile of c = a @ b or relu(a @ b + bias). ldb leads from row to row of the stored matrix B."""
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    i = (m + tl.arange(0, BM)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BN)).to(tl.int64)[None, :]
    ka = tl.arange(0, BK)[None, :]
    kb = tl.arange(0, BK)[:, None]
    a_ptrs = a_ptr + i * stride_am + ka * stride_ak
    if B_T:
        b_ptrs = b_ptr + j * ldb + kb
        b_step = BK
    else:
        b_ptrs = b_ptr + kb * ldb + j
        b_step = BK * ldb

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs, mask=(i < M) & (ka < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(kb < K - k) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * stride_ak
        b_ptrs += b_step

    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
        acc = tl.where(acc > 0.0, acc, 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _run(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # A transposed view of an (N, K) matrix: neighbours in memory are neighbours along K.
    transposed = b.stride(0) == 1
    ldb = b.stride(1) if transposed else b.stride(0)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), ldb, out.stride(0), out.stride(1), B_T=transposed, BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype: bf16, fp16 or fp32; fp32 sums, rounded once."""
    return _run(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous."""
    return _run(a, b, bias, out, True)
