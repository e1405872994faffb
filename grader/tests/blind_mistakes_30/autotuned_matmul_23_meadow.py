# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | in linear_relu_kernel the ReLU is `tl.max(acc + bias[None, :], 0)`, which reduces along axis 0 and leaves BLOCK_N numbers, so the store into a BLOCK_M x BLOCK_N tile of pointers fails ("Cannot broadcast, rank mismatch", in the interpreter and the compiler); shows in every call of matmul_bias_relu, matmul is right; it should be tl.maximum(acc + bias[None, :], 0.0)
"""A kernel for the plain product and one for the fused layer, both around the same loop along K."""

import torch
import triton
import triton.language as tl


def candidates():
    shapes = ((128, 128, 64, 3, 8), (64, 128, 64, 3, 4), (128, 64, 64, 3, 4), (64, 64, 32, 3, 4))
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w)
        for m, n, k, s, w in shapes
    ]


def fitting(configs, named_args, **kwargs):
    bound = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        bound = min(bound, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= bound] or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_n = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * tiles_n)
    first = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile - group * GROUP_M * tiles_n
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def product(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of one tile; rows and cols are its int64 numbers."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    a_row = a_ptr + rows[:, None] * stride_am
    b_col = b_ptr + cols[None, :] * stride_bn
    for start in range(0, K, BLOCK_K):
        ks = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_row + ks[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_col + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.autotune(configs=candidates(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = product(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(at, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.autotune(configs=candidates(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_relu_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    acc = product(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    acc = tl.max(acc + bias[None, :], 0)
    at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(at, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def _result(a, b, out):
    if out is not None:
        return out
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def _grid(M, N):
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    (M, K), N = a.shape, b.shape[1]
    out = _result(a, b, out)
    matmul_kernel[_grid(M, N)](a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    (M, K), N = a.shape, b.shape[1]
    out = _result(a, b, out)
    linear_relu_kernel[_grid(M, N)](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out
