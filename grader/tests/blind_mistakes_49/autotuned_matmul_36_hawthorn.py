# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | 1: `corner` returns `(spot // BAND) * BN` as the column; it should be `spot // rows_here`: where the last band has fewer than 8 tile rows and there is more than one tile column, tiles are computed twice and others never written (most sizes of more than one tile, both functions). 2: `bias_relu` returns `tl.where(acc > 0.0, acc + bias, 0.0)`; it should test `acc + bias > 0.0` (`tl.maximum(acc + bias, 0.0)`): wrong in matmul_bias_relu where acc and acc + bias differ in sign, also for a single tile.
"""Matrix product with fixed offsets inside of a tile: the base pointers of a and b walk along K."""

import torch
import triton
import triton.language as tl

BAND = tl.constexpr(8)  # tile rows that share columns of b in L2


def _tile(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)


CONFIGS = [
    _tile(128, 128, 64, 4, 8),
    _tile(128, 128, 32, 4, 8),
    _tile(128, 64, 64, 4, 4),
    _tile(64, 128, 64, 4, 4),
    _tile(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Leave out tiles that are larger than the result, and for fp32 those above 64 x 64."""
    largest = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 128)
    kept = [c for c in configs if c.kwargs["BM"] <= largest and c.kwargs["BN"] <= largest]
    return kept or configs[-1:]


@triton.jit
def corner(pid, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """First row and first column of the tile of a program, band by band."""
    wide = tl.cdiv(N, BN)
    high = tl.cdiv(M, BM)
    band = pid // (BAND * wide)
    top = band * BAND
    rows_here = tl.minimum(high - top, BAND)
    spot = pid - band * BAND * wide
    return (top + spot % rows_here) * BM, (spot // BAND) * BN


@triton.jit
def bias_relu(acc, bias):
    """ReLU of the sums with their bias, one value for each column."""
    bias = bias.to(tl.float32)[None, :]
    return tl.where(acc > 0.0, acc + bias, 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def walk_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    FUSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m, n = corner(tl.program_id(0), M, N, BM, BN)
    rm = (m + tl.arange(0, BM)).to(tl.int64)
    rn = (n + tl.arange(0, BN)).to(tl.int64)
    rk = tl.arange(0, BK)
    a_offsets = rm[:, None] * sam + rk[None, :] * sak
    b_offsets = rk[:, None] * sbk + rn[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + a_offsets, mask=(rm[:, None] < M) & (rk[None, :] + k < K), other=0.0)
        b = tl.load(b_ptr + b_offsets, mask=(rk[:, None] + k < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptr += BK * sak
        b_ptr += BK * sbk
    if FUSED:
        acc = bias_relu(acc, tl.load(bias_ptr + rn, mask=rn < N, other=0.0))
    c_ptrs = c_ptr + rm[:, None] * scm + rn[None, :] * scn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def _launch(a, b, bias, out, fused):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    walk_kernel[grid](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        FUSED=fused,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b, into out where it is given."""
    return _launch(a, b, a, out, fused=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias), into out where it is given."""
    return _launch(a, b, bias, out, fused=True)
