# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product whose tiles are walked like a field under a plough: one band of rows to the right, the next to the left.

Where a band ends the next begins in the same columns, so the strip of b that was read last is still in L2.
"""

import itertools

import torch
import triton
import triton.language as tl


def _variants():
    """Square-ish tiles, two depths each; the last one is for small results and for fp32."""
    large = [
        triton.Config({"BM": bm, "BN": bn, "BK": 64, "BAND": band}, num_stages=3, num_warps=8)
        for (bm, bn), band in itertools.product(((128, 256), (256, 128)), (4, 8))
    ]
    medium = [
        triton.Config({"BM": 128, "BN": 128, "BK": 64, "BAND": 8}, num_stages=4, num_warps=8),
        triton.Config({"BM": 64, "BN": 128, "BK": 64, "BAND": 8}, num_stages=4, num_warps=4),
    ]
    small = triton.Config({"BM": 64, "BN": 64, "BK": 32, "BAND": 8}, num_stages=3, num_warps=4)
    return [*large, *medium, small]


def _no_larger_than_c(configs, named_args, **kwargs):
    smallest = configs[-1]
    if named_args["bias_ptr"].dtype == torch.float32:
        return [smallest]
    M, N = named_args["M"], named_args["N"]
    return [c for c in configs if c.kwargs["BM"] <= M and c.kwargs["BN"] <= N] or [smallest]


@triton.jit
def plough(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, BAND: tl.constexpr):
    """First row and first column of a tile."""
    across = tl.cdiv(N, BN)
    band = tile // (BAND * across)
    step = tile % (BAND * across)
    height = min(tl.cdiv(M, BM) - band * BAND, BAND)
    row = band * BAND + step % height
    col = step // height
    col = tl.where(band % 2 == 0, col, across - 1 - col)
    return row * BM, col * BN


@triton.jit
def add_block(
    acc, a_rows, b_cols, ks, K, stride_ak, stride_bk, row_ok, col_ok, TAIL: tl.constexpr
):
    """acc + the product of one block of K; only the last one may be shorter than the block."""
    a_ok = row_ok[:, None]
    b_ok = col_ok[None, :]
    if TAIL:
        a_ok = a_ok & (ks < K)[None, :]
        b_ok = b_ok & (ks < K)[:, None]
    a = tl.load(a_rows + ks[None, :] * stride_ak, mask=a_ok, other=0.0)
    b = tl.load(b_cols + ks[:, None] * stride_bk, mask=b_ok, other=0.0)
    return tl.dot(a, b, acc, input_precision="ieee")


@triton.autotune(configs=_variants(), key=["M", "N", "K"], prune_configs_by={"early_config_prune": _no_larger_than_c})
@triton.jit
def field_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    m, n = plough(tl.program_id(0), M, N, BM, BN, BAND)
    rows = (m + tl.arange(0, BM)).to(tl.int64)
    cols = (n + tl.arange(0, BN)).to(tl.int64)
    ks = tl.arange(0, BK).to(tl.int64)
    row_ok = rows < M
    col_ok = cols < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    whole = K // BK * BK
    for k in range(0, whole, BK):
        acc = add_block(acc, a_rows, b_cols, k + ks, K, stride_ak, stride_bk, row_ok, col_ok, False)
    if whole < K:
        acc = add_block(acc, a_rows, b_cols, whole + ks, K, stride_ak, stride_bk, row_ok, col_ok, True)

    if EPILOGUE:
        bias = tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)
        acc += bias[None, :]
        acc = tl.where(acc > 0.0, acc, 0.0)
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_ok[:, None] & col_ok[None, :],
    )


def _multiply(a, b, bias, out, epilogue):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    count = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    field_kernel[count](a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _multiply(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _multiply(a, b, bias, out, True)
