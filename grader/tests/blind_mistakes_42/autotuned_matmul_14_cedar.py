# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | In `tile_origin`, `height = min(tiles_m - band, BAND)` subtracts the number of the band, not its first row of tiles; it should be `min(tiles_m - band * BAND, BAND)`. It shows where there are more rows of tiles than BAND and a short last band of fewer rows than BAND (1031 or 521 rows with 64-row tiles): tiles of the last band stay unwritten; both functions.
"""Matrix product in bands of tiles, autotuned over tile and band, with a fused epilogue."""

import torch
import triton
import triton.language as tl


def _config(bm, bn, bk, band, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk, "BAND": band}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _config(128, 256, 64, 8, 3, 8),
    _config(128, 256, 64, 8, 4, 8),
    _config(256, 128, 64, 4, 3, 8),
    _config(128, 128, 64, 8, 4, 8),
    _config(128, 64, 64, 8, 4, 4),
    _config(64, 64, 32, 8, 4, 4),
]


def prune(configs, named_args, **kwargs):
    """fp32 runs without tensor cores, in small tiles; no tile is larger than c."""
    fp32 = named_args["a_ptr"].dtype == torch.float32
    side = min(named_args["M"], named_args["N"], 64 if fp32 else 256)
    kept = [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= side]
    return kept or configs[-1:]


@triton.jit
def tile_origin(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, BAND: tl.constexpr):
    """A band is BAND rows of tiles, walked column by column; the last band may be lower."""
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    per_band = BAND * tiles_n
    band = tile // per_band
    inside = tile % per_band
    height = min(tiles_m - band, BAND)
    row = band * BAND + inside % height
    column = inside // height
    return row * BM, column * BN


@triton.jit
def accumulate(a_ptrs, b_ptrs, row_ok, col_ok, K, step_a, step_b,
               BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    """The sum of the products of all tiles along K."""
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        remaining = K - step * BK
        a = tl.load(a_ptrs, mask=row_ok & (ks < remaining)[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=col_ok & (ks < remaining)[:, None], other=0.0)
        acc = tl.dot(a, b, acc=acc, input_precision="ieee")
        a_ptrs += step_a
        b_ptrs += step_b
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def banded_matmul(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, EPILOGUE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    m, n = tile_origin(tl.program_id(0), M, N, BM, BN, BAND)
    rows = (m + tl.arange(0, BM)).to(tl.int64)
    cols = (n + tl.arange(0, BN)).to(tl.int64)
    ks = tl.arange(0, BK)
    row_ok = (rows < M)[:, None]
    col_ok = (cols < N)[None, :]
    acc = accumulate(
        a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak,
        b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn,
        row_ok, col_ok, K, BK * stride_ak, BK * stride_bk, BM, BN, BK,
    )  # fmt: skip
    if EPILOGUE:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _run(a, b, bias, out, epilogue):
    M, K = a.shape
    K, N = b.shape
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    banded_matmul[grid](
        a, b, out, bias, M, N, K, *a.stride(), *b.stride(), *out.stride(), EPILOGUE=epilogue
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for matrices of one dtype, any strides."""
    return _run(a, b, a, out, epilogue=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), the bias added to the fp32 sums."""
    return _run(a, b, bias, out, epilogue=True)
