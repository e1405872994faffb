# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | new_result() gives the result the layout of a: for a transposed a, without out, the function returns a column-major tensor, strides (1, M). Without out it must return a contiguous (M, N) tensor, torch.empty((M, N), ...).
"""Matrix product for operands of any layout."""

import torch
import triton
import triton.language as tl


def sizes(m, n, k, stages=3, warps=8):
    return triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=stages, num_warps=warps)


CONFIGS = [
    sizes(128, 256, 64),
    sizes(256, 128, 64),
    sizes(128, 128, 64, stages=4),
    sizes(64, 128, 32, stages=4, warps=4),
    sizes(64, 64, 32, warps=4),
]


def fitting(configs, named_args, **kwargs):
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    wide = tl.cdiv(N, BLOCK_N)
    high = tl.cdiv(M, BLOCK_M)
    group = tile // (GROUP_M * wide)
    inside = tile % (GROUP_M * wide)
    rows = tl.minimum(high - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + inside % rows) * BLOCK_M, inside // rows * BLOCK_N


@triton.jit
def address(ptr, i, j, stride_i, stride_j):
    return ptr + i[:, None] * stride_i + j[None, :] * stride_j


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        l = tl.arange(0, BLOCK_K).to(tl.int64) + k  # noqa: E741
        a = tl.load(address(a_ptr, i, l, stride_am, stride_ak), mask=(i < M)[:, None] & (l < K)[None, :], other=0.0)
        b = tl.load(address(b_ptr, l, j, stride_bk, stride_bn), mask=(l < K)[:, None] & (j < N)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        acc += tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)[None, :]
        acc = tl.maximum(acc, 0.0)
    tl.store(
        address(c_ptr, i, j, stride_cm, stride_cn), acc.to(c_ptr.dtype.element_ty), mask=(i < M)[:, None] & (j < N)[None, :]
    )


def new_result(a, M, N):
    if a.stride(0) == 1 and a.stride(1) != 1:
        return torch.empty_strided((M, N), (1, M), device=a.device, dtype=a.dtype)
    return torch.empty((M, N), device=a.device, dtype=a.dtype)


def compute(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = new_result(a, M, N)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return compute(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return compute(a, b, bias, out, bias_relu=True)
