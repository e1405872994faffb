# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In matmul_bias_relu the grid function returns a number: `lambda meta: (cdiv(...) * cdiv(...))` lacks the comma of a tuple of one, so every launch of fused_kernel raises "object of type 'int' has no len()". It should be `(cdiv(...) * cdiv(...),)` as in matmul, which is right.
"""Two kernels, one for the plain product and one with bias and ReLU, that share their loop along K."""

import torch
import triton
import triton.language as tl
from triton import cdiv


def candidates(*shapes):
    return [
        triton.Config(
            {"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "GROUP_M": group}, num_stages=stages, num_warps=warps
        )
        for bm, bn, bk, group, stages, warps in shapes
    ]


CONFIGS = candidates(
    (128, 256, 64, 8, 3, 8),
    (256, 128, 64, 4, 3, 8),
    (128, 128, 32, 8, 4, 8),
    (64, 128, 64, 8, 4, 4),
    (64, 64, 32, 8, 4, 4),
    (16, 64, 64, 1, 3, 4),
    (32, 32, 32, 8, 2, 2),
)


def fitting(configs, named_args, **kwargs):
    M, N = named_args["M"], named_args["N"]
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= min(M, widest) and c.kwargs["BLOCK_N"] <= min(N, widest)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def sum_along_k(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 sums of the tile at `rows` (a column) and `cols` (a row), both int64."""
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        left = (k + ks)[None, :]
        a = tl.load(a_ptr + rows * stride_am + left * stride_ak, mask=(rows < M) & (left < K), other=0.0)
        down = (k + ks)[:, None]
        b = tl.load(b_ptr + down * stride_bk + cols * stride_bn, mask=(down < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = sum_along_k(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=(rows < M) & (cols < N))


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def fused_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = sum_along_k(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K
    )
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    c = tl.maximum(acc + bias, 0.0).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, c, mask=(rows < M) & (cols < N))


def _result(a, b, out):
    if out is not None:
        return out
    return torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, any strides."""
    out = _result(a, b, out)
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    grid = lambda meta: (cdiv(M, meta["BLOCK_M"]) * cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    matmul_kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), any strides of the matrices."""
    out = _result(a, b, out)
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    grid = lambda meta: (cdiv(M, meta["BLOCK_M"]) * cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    fused_kernel[grid](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out
