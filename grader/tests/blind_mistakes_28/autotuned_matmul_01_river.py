# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In matmul_kernel the prefetched blocks replace the current ones (`a, b = next_a, next_b`) before tl.dot instead of after it, so the first block of K (columns 0 to BLOCK_K-1 of a) is never in the sum, and a block of zeros past K is added instead; both functions are wrong in every case, and with K <= BLOCK_K the sums are all 0; the tl.dot should come before the exchange
"""Matrix product tile by tile, autotuned, and the same with bias and ReLU in the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    """One candidate: tile sizes, powers of two, with the depth of the pipeline and the warps per program."""
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
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
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    per_group = GROUP_M * tiles_n
    first = (tile // per_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % per_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def block_of_a(a_ptr, rows, k, M, K, stride_am, stride_ak, BLOCK_K: tl.constexpr):
    ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
    inside = (rows[:, None] < M) & (ks[None, :] < K)
    return tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=inside, other=0.0)


@triton.jit
def block_of_b(b_ptr, cols, k, N, K, stride_bk, stride_bn, BLOCK_K: tl.constexpr):
    ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
    inside = (ks[:, None] < K) & (cols[None, :] < N)
    return tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=inside, other=0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); the blocks of the next step are loaded ahead of the product."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a = block_of_a(a_ptr, rows, 0, M, K, stride_am, stride_ak, BLOCK_K)
    b = block_of_b(b_ptr, cols, 0, N, K, stride_bk, stride_bn, BLOCK_K)
    for k in range(0, K, BLOCK_K):
        # Past the end both are zeros.
        next_a = block_of_a(a_ptr, rows, k + BLOCK_K, M, K, stride_am, stride_ak, BLOCK_K)
        next_b = block_of_b(b_ptr, cols, k + BLOCK_K, N, K, stride_bk, stride_bn, BLOCK_K)
        a, b = next_a, next_b
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
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
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
