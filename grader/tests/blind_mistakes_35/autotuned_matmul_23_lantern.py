# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | strip_product starts with acc = 0.0, a scalar, and the loop makes it a block of (BLOCK_M, BLOCK_N): a variable carried by a loop may not change its type, so neither kernel compiles for a GPU, in any case (Triton's interpreter runs it, with right numbers). It should be acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32).
"""Two kernels, the plain product and the one with bias and ReLU, on the same helpers."""

import torch
import triton
import triton.language as tl

OPTIONS = [
    ({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, 3, 8),
    ({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, 3, 8),
    ({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, 4, 4),
    ({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, 4, 4),
    ({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, 3, 4),
]
CONFIGS = [triton.Config(tile, num_stages=stages, num_warps=warps) for tile, stages, warps in OPTIONS]


def fitting(configs, named_args, **kwargs):
    """No tile larger than the result; for fp32 none larger than 64."""
    side = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        side = min(side, 64)
    return [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= side] or configs[-1:]


@triton.jit
def place(tile, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows of tiles one after the other, every second one from right to left, as an ox ploughs a field."""
    across = tl.cdiv(N, BLOCK_N)
    i = tile // across
    j = tile % across
    j = tl.where(i % 2 == 1, across - 1 - j, j)
    return i * BLOCK_M, j * BLOCK_N


@triton.jit
def strip_product(
    a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of the tile with its corner at (m, n)."""
    rows = m + tl.arange(0, BLOCK_M)
    cols = n + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows.to(tl.int64)[:, None] * stride_am + ks[None, :] * stride_ak
    b_at = b_ptr + ks[:, None] * stride_bk + cols.to(tl.int64)[None, :] * stride_bn
    acc = 0.0
    for k in range(0, K, BLOCK_K):
        x = tl.load(a_at, mask=(rows < M)[:, None] & (ks < K - k)[None, :], other=0.0)
        y = tl.load(b_at, mask=(ks < K - k)[:, None] & (cols < N)[None, :], other=0.0)
        acc += tl.dot(x, y, input_precision="ieee")
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    return acc


@triton.jit
def put(
    values, c_ptr, m, n, M, N, stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    c_at = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_at, values.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), N, BLOCK_M, BLOCK_N)
    sums = strip_product(
        a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    put(sums, c_ptr, m, n, M, N, stride_cm, stride_cn, BLOCK_M, BLOCK_N)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def linear_relu_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(0), N, BLOCK_M, BLOCK_N)
    sums = strip_product(
        a_ptr, b_ptr, m, n, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    cols = n + tl.arange(0, BLOCK_N)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    put(tl.maximum(sums + bias[None, :], 0.0), c_ptr, m, n, M, N, stride_cm, stride_cn, BLOCK_M, BLOCK_N)


def _result(a, b, out):
    if out is not None:
        return out
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for any strides."""
    out = _result(a, b, out)
    M, K = a.shape
    N = b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    product_kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) for any strides of a, b and out."""
    out = _result(a, b, out)
    M, K = a.shape
    N = b.shape[1]
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    linear_relu_kernel[grid](a, b, bias, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out
