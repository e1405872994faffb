# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | `matmul_kernel` (both functions). First: `grid_of(c_ptr, rows, cols, stride_c, 1)` takes columns of `out` to be side by side; it should use `out.stride(1)`; shows where `out` is transposed or every second column of a wider matrix, in all dtypes. Second: `tl.dot(a, b, acc, out_dtype=tl.float32)` lacks `input_precision="ieee"` (out_dtype does not set it), so fp32 inputs are multiplied as TF32; shows in fp32 cases, also with contiguous `out`.
"""Matrix product and its fused epilogue, with one kernel body put together from small helpers."""

import torch
import triton
import triton.language as tl


def _candidates():
    """Tiles from large to small; 256 columns or rows of sums need 8 warps."""
    large = [(128, 256, 64, 3, 8), (256, 128, 64, 3, 8), (128, 128, 64, 4, 8)]
    small = [(64, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 64, 32, 4, 4)]
    return [
        triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)
        for bm, bn, bk, stages, warps in large + small
    ]


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and at most 64 x 64 for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(widest, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BM"] <= size and c.kwargs["BN"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile; GROUP rows of tiles are walked column by column."""
    across = tl.cdiv(N, BN)
    group = tile // (GROUP * across)
    first = group * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    within = tile % (GROUP * across)
    return (first + within % height) * BM, (within // height) * BN


@triton.jit
def grid_of(ptr, down, across, stride_down, stride_across):
    """Addresses of the elements (down, across) of a matrix."""
    return ptr + down[:, None] * stride_down + across[None, :] * stride_across


@triton.jit
def epilogue(acc, bias_ptr, cols, N):
    """relu(acc + bias) in fp32, one bias for each column."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    return tl.maximum(acc + bias.to(tl.float32)[None, :], 0.0)


@triton.autotune(configs=_candidates(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_c, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BM, BN, GROUP)
    rows = m.to(tl.int64) + tl.arange(0, BM)
    cols = n.to(tl.int64) + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_ptrs = grid_of(a_ptr, rows, ks, stride_am, stride_ak)
    b_ptrs = grid_of(b_ptr, ks, cols, stride_bk, stride_bn)

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = K - step * BK
        a = tl.load(a_ptrs, mask=row_exists & (ks[None, :] < left), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < left) & col_exists, other=0.0)
        acc = tl.dot(a, b, acc, out_dtype=tl.float32)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk

    if BIAS_RELU:
        acc = epilogue(acc, bias_ptr, cols, N)
    c_ptrs = grid_of(c_ptr, rows, cols, stride_c, 1)
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
        BIAS_RELU=bias_relu,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
