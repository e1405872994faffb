# labs/lab3_autotuned_matmul/autotuned_matmul.py | error | `rows[:, None] * stride_am.to(tl.int64)` and `rows[:, None] * stride_cm.to(tl.int64)` in `matmul_kernel`: an integer argument that is 1 is a constant (constexpr) and has no `.to`; should be `rows.to(tl.int64)[:, None] * stride_am`, likewise for c. Compile error (AttributeError) where `a.stride(0) == 1` or `out.stride(0) == 1`: transposed `a`, transposed `out`, contiguous `a` with K = 1 or `out` with N = 1; right otherwise.
"""Autotuned matrix product: small helpers in the kernel, one for each job."""

import torch
import triton
import triton.language as tl


def _choices():
    yield 128, 256, 64, 3, 8
    yield 256, 128, 64, 3, 8
    yield 128, 128, 64, 4, 8
    yield 128, 64, 64, 4, 4
    yield 64, 64, 64, 3, 4
    yield 64, 64, 32, 3, 4


CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in _choices()
]


def fitting(configs, named_args, **kwargs):
    """Tiles that the result fills; fp32 has no tensor cores, and takes small ones."""
    limit = min(named_args["M"], named_args["N"])
    if named_args["bias_ptr"].dtype == torch.float32:
        limit = min(limit, 64)
    kept = []
    for config in configs:
        if config.kwargs["BM"] <= limit and config.kwargs["BN"] <= limit:
            kept.append(config)
    return kept or configs[-1:]


@triton.jit
def grouped(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """Row numbers and column numbers of the elements of one tile of c."""
    tiles_n = tl.cdiv(N, BN)
    first = tile // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    within = tile % (GROUP * tiles_n)
    rows = (first + within % height) * BM + tl.arange(0, BM)
    cols = within // height * BN + tl.arange(0, BN)
    return rows, cols


@triton.jit
def product(
    a_ptrs, b_ptrs, rows_in, cols_in, K, stride_ak, stride_bk, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The fp32 sums of one tile."""
    ks = tl.arange(0, BK)
    a_ptrs = a_ptrs + ks[None, :] * stride_ak
    b_ptrs = b_ptrs + ks[:, None] * stride_bk
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        in_a = rows_in & (ks[None, :] < K - k)
        in_b = cols_in & (ks[:, None] < K - k)
        acc = tl.dot(
            tl.load(a_ptrs, mask=in_a, other=0.0), tl.load(b_ptrs, mask=in_b, other=0.0), acc, input_precision="ieee"
        )
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    return acc


@triton.jit
def bias_then_relu(acc, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    shifted = acc + bias[None, :]
    return tl.where(shifted > 0.0, shifted, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tl.assume(K > 0)
    rows, cols = grouped(tl.program_id(0), M, N, BM, BN, GROUP)
    rows_in = (rows < M)[:, None]
    cols_in = (cols < N)[None, :]
    far_cols = cols.to(tl.int64)[None, :]

    # Rows may lie far apart: from here on a row number times its stride is a number of 64 bits.
    a_rows = a_ptr + rows[:, None] * stride_am.to(tl.int64)
    c_rows = c_ptr + rows[:, None] * stride_cm.to(tl.int64)

    acc = product(a_rows, b_ptr + far_cols * stride_bn, rows_in, cols_in, K, stride_ak, stride_bk, BM, BN, BK)
    if BIAS_RELU:
        acc = bias_then_relu(acc, bias_ptr, cols, N)
    tl.store(c_rows + far_cols * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=rows_in & cols_in)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    matmul_kernel[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), BIAS_RELU=bias_relu
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
