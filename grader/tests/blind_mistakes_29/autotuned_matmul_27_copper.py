# labs/lab3_autotuned_matmul/autotuned_matmul.py | contract | In _empty_result: without `out`, where a is a transposed view (stride(0) == 1 < stride(1)), the new result is `torch.empty((N, M)).T`, a view with strides (1, M); the README asks for a new contiguous (M, N) matrix. The numbers are right. Shows only in calls without `out` with a transposed a and M, N > 1; it should always be torch.empty((M, N)).
"""Two kernels: one for results stored row by row, one for results stored column by column."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    if named_args["bias_ptr"].dtype == torch.float32:
        configs = configs[-2:]
    size = min(named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = tile // in_group * GROUP_M
    height = min(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, within // height * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """A tile with the columns of c side by side."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        p = k + ks
        x = tl.load(a_ptr + i * stride_am + p[None, :] * stride_ak, mask=(i < M) & (p[None, :] < K), other=0.0)
        y = tl.load(b_ptr + p[:, None] * stride_bk + j * stride_bn, mask=(p[:, None] < K) & (j < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def across_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """The same tile lying on its side, b^T @ a^T: here the rows of c are side by side."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[None, :]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[:, None]
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        p = k + ks
        y = tl.load(b_ptr + p[None, :] * stride_bk + j * stride_bn, mask=(p[None, :] < K) & (j < N), other=0.0)
        x = tl.load(a_ptr + i * stride_am + p[:, None] * stride_ak, mask=(i < M) & (p[:, None] < K), other=0.0)
        acc = tl.dot(y, x, acc, input_precision="ieee")
    if BIAS_RELU:
        acc = tl.maximum(acc + tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32), 0.0)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=(i < M) & (j < N))


def _columnwise(x):
    """Whether the columns of x lie one behind the other."""
    return x.stride(0) == 1 and x.stride(1) > 1


def _empty_result(a, b):
    M, N = a.shape[0], b.shape[1]
    if _columnwise(a):
        return torch.empty((N, M), device=a.device, dtype=a.dtype).T
    return torch.empty((M, N), device=a.device, dtype=a.dtype)


def _launch(a, b, bias, out, bias_relu):
    out = _empty_result(a, b) if out is None else out
    (M, K), N = a.shape, b.shape[1]

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    strides = (*a.stride(), *b.stride(), *out.stride())
    if _columnwise(out):
        across_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    else:
        matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, BIAS_RELU=bias_relu)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, with stores that follow the layout of the result."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), with stores that follow the layout of the result."""
    return _launch(a, b, bias, out, bias_relu=True)
