# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | In sum_of_products the prefetched tiles replace a_now and b_now before tl.dot instead of after it: the first block of K is loaded but never multiplied, and the last product is one of zeros. Both functions lack the first BK products of every sum in every case (matmul is all zero where K <= BK). The dot must come before `a_now, b_now = a_next, b_next`.
"""Matrix product whose loop asks for the next two tiles before it multiplies the two at hand."""

import torch
import triton
import triton.language as tl

TILES = [
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 64, "BK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 128, "BK": 64}, num_stages=3, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=2, num_warps=4),
]


def usable(configs, args, **rest):
    limit = min(args["M"], args["N"], 64 if args["a_ptr"].dtype == torch.float32 else 128)
    chosen = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= limit]
    return chosen if chosen else [configs[-1]]


@triton.jit
def corner(M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Rows and columns of the tile of this program; eight tile rows are walked together."""
    pid = tl.program_id(0)
    across = tl.cdiv(N, BN)
    band = pid // (8 * across)
    height = tl.minimum(tl.cdiv(M, BM) - 8 * band, 8)
    inside = pid % (8 * across)
    rows = (8 * band + inside % height) * BM + tl.arange(0, BM)
    cols = (inside // height) * BN + tl.arange(0, BN)
    return rows.to(tl.int64), cols.to(tl.int64)


@triton.jit
def fetch(ptr, i, j, stride_i, stride_j, end_i, end_j):
    inside = (i < end_i)[:, None] & (j < end_j)[None, :]
    return tl.load(ptr + i[:, None] * stride_i + j[None, :] * stride_j, mask=inside, other=0.0)


@triton.jit
def sum_of_products(
    a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    lane = tl.arange(0, BK).to(tl.int64)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    a_now = fetch(a_ptr, rows, lane, stride_am, stride_ak, M, K)
    b_now = fetch(b_ptr, lane, cols, stride_bk, stride_bn, K, N)
    for k in range(BK, K + BK, BK):
        # In the last round the lanes are all past K, and both fetches give zeros.
        a_next = fetch(a_ptr, rows, lane + k, stride_am, stride_ak, M, K)
        b_next = fetch(b_ptr, lane + k, cols, stride_bk, stride_bn, K, N)
        a_now, b_now = a_next, b_next
        acc = tl.dot(a_now, b_now, acc, input_precision="ieee")
    return acc


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": usable})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows, cols = corner(M, N, BM, BN)
    acc = sum_of_products(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BM, BN, BK
    )
    at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(at, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": usable})
@triton.jit
def linear_relu_kernel(
    a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows, cols = corner(M, N, BM, BN)
    acc = sum_of_products(
        a_ptr, b_ptr, rows, cols, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, BM, BN, BK
    )
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    acc = tl.maximum(acc + bias[None, :], 0.0)
    at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(at, acc.to(c_ptr.dtype.element_ty), mask=(rows < M)[:, None] & (cols < N)[None, :])


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    product_kernel[grid](a, b, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    linear_relu_kernel[grid](a, b, bias, out, M, N, K, *a.stride(), *b.stride(), *out.stride())
    return out
