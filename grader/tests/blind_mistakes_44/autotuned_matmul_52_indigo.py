# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | In `product_kernel` the strides are converted, not the row numbers: `rm[:, None] * stride_am.to(tl.int64)` and `rm[:, None] * stride_cm.to(tl.int64)`; it should be `rm.to(tl.int64)[:, None] * stride_am` (and `stride_cm`). A stride of 1 is a constexpr without `.to`, so both functions do not compile for a transposed a (stride_am = 1), a transposed out or N = 1 (stride_cm = 1), or a contiguous a with K = 1; all else is right.
"""Autotuned matrix product, columns of tiles in groups, with an optional epilogue of bias and ReLU."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP_N": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64, "GROUP_N": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP_N": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 128, "BN": 64, "BK": 64, "GROUP_N": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP_N": 8}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and of at most 64 x 64 for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= limit] or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP_N: tl.constexpr):
    """First row and first column of a tile: GROUP_N columns of tiles are walked row by row."""
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    in_group = GROUP_N * tiles_m
    first = (tile // in_group) * GROUP_N
    width = tl.minimum(tiles_n - first, GROUP_N)
    within = tile % in_group
    return (within // width) * BM, (first + within % width) * BN


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP_N: tl.constexpr,
):  # fmt: skip
    """One BM x BN tile of c = a @ b, or of relu(a @ b + bias) with EPILOGUE."""
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP_N)
    rm = m + tl.arange(0, BM)
    rn = (n + tl.arange(0, BN)).to(tl.int64)
    rk = tl.arange(0, BK)
    in_m = rm[:, None] < M
    in_n = rn[None, :] < N

    # Rows may begin beyond 2^31 elements: their offsets are 64 bits wide.
    a_rows = a_ptr + rm[:, None] * stride_am.to(tl.int64)
    b_cols = b_ptr + rn[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + rk
        a = tl.load(a_rows + k[None, :] * stride_ak, mask=in_m & (k[None, :] < K), other=0.0)
        b = tl.load(b_cols + k[:, None] * stride_bk, mask=in_n & (k[:, None] < K), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if EPILOGUE:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc += bias[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)

    c_rows = c_ptr + rm[:, None] * stride_cm.to(tl.int64)
    tl.store(c_rows + rn[None, :] * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=in_m & in_n)


def _product(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    product_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _product(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _product(a, b, bias, out, True)
