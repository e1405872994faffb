# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) add_products: col_ok, the mask of the columns of b, compares n with M (col_ok = n < M) instead of N: for M < N the columns from M on get sums of 0, in both functions; for M > N b is read past its columns, which changes no result but reads outside (out of bounds). (2) finish: ReLU comes before the bias, tl.maximum(total, 0.0) + bias, instead of tl.maximum(total + bias, 0.0): matmul_bias_relu is wrong in every case.
"""Matrix product with K dealt out among programs, which add to fp32 sums; a second kernel finishes them."""

import torch
import triton
import triton.language as tl

# M, N and K of a tile, among how many programs its K is dealt out, stages, warps
TABLE = (
    (128, 128, 64, 1, 3, 8),
    (128, 64, 64, 2, 4, 4),
    (64, 64, 64, 1, 4, 4),
    (64, 64, 32, 4, 4, 4),
    (32, 32, 32, 4, 3, 4),
)
CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "SPLIT": split}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, split, stages, warps in TABLE
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 128
    widest = min(widest, named_args["M"], named_args["N"])
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= widest] or configs[-1:]


# Trials of the autotuner add to the same sums, so they are cleared before each.
@triton.autotune(
    configs=CONFIGS,
    key=["M", "N", "K"],
    reset_to_zero=["sums_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def add_products(
    a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """sums (M, N), contiguous and cleared, += a @ b; of SPLIT blocks of K in a row each program takes one."""
    tile = tl.program_id(0)
    turn = tl.program_id(1)
    across = tl.cdiv(N, BN)
    m = (tile // across) * BM + tl.arange(0, BM)
    n = (tile % across) * BN + tl.arange(0, BN)
    lane = tl.arange(0, BK)
    row_ok = m < M
    col_ok = n < M
    rows = m.to(tl.int64)
    cols = n.to(tl.int64)

    first = turn * BK
    a_at = a_ptr + rows[:, None] * stride_am + (first + lane)[None, :] * stride_ak
    b_at = b_ptr + (first + lane)[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(first, K, SPLIT * BK):
        k_ok = lane < K - k
        a = tl.load(a_at, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
        b = tl.load(b_at, mask=k_ok[:, None] & col_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += SPLIT * BK * stride_ak
        b_at += SPLIT * BK * stride_bk

    inside = row_ok[:, None] & (n < N)[None, :]
    tl.atomic_add(sums_ptr + rows[:, None] * N + cols[None, :], acc, mask=inside, sem="relaxed")


@triton.jit
def finish(
    sums_ptr, c_ptr, bias_ptr, M, N, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """From the sums to the result: the epilogue in fp32, and one rounding."""
    across = tl.cdiv(N, COLS)
    m = (tl.program_id(0) // across) * ROWS + tl.arange(0, ROWS)
    n = (tl.program_id(0) % across) * COLS + tl.arange(0, COLS)
    inside = (m < M)[:, None] & (n < N)[None, :]
    rows = m.to(tl.int64)[:, None]
    cols = n.to(tl.int64)[None, :]
    total = tl.load(sums_ptr + rows * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0) + bias[None, :]
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    tiles = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), meta["SPLIT"])  # noqa: E731
    add_products[tiles](a, b, sums, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    blocks = (triton.cdiv(M, 16) * triton.cdiv(N, 128),)
    finish[blocks](
        sums, out, bias, M, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, ROWS=16, COLS=128
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _launch(a, b, bias, out, bias_relu=True)
