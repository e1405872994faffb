# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | Unusual: tiles in bands of columns walked in a snake (down, then up), sums that start from the bias in fp32, a loop over whole blocks of K without a mask for K and a masked rest under `if whole < K`, ReLU by `tl.where`.
"""Autotuned matrix product on tiles in a snake order: whole blocks of K without a mask for K, then the rest."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"TILE_M": 128, "TILE_N": 128, "TILE_K": 64, "BAND": 8}, num_stages=4, num_warps=8),
    triton.Config({"TILE_M": 128, "TILE_N": 128, "TILE_K": 64, "BAND": 16}, num_stages=3, num_warps=8),
    triton.Config({"TILE_M": 128, "TILE_N": 64, "TILE_K": 64, "BAND": 8}, num_stages=4, num_warps=4),
    triton.Config({"TILE_M": 64, "TILE_N": 128, "TILE_K": 64, "BAND": 8}, num_stages=4, num_warps=4),
    triton.Config({"TILE_M": 64, "TILE_N": 64, "TILE_K": 32, "BAND": 8}, num_stages=4, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The last config for fp32; otherwise tiles that are no larger than the result."""
    if named_args["a_ptr"].dtype == torch.float32:
        return configs[-1:]
    M, N = named_args["M"], named_args["N"]
    kept = [c for c in configs if c.kwargs["TILE_M"] <= M and c.kwargs["TILE_N"] <= N]
    return kept or configs[-1:]


@triton.jit
def snake(pid, tiles_m, tiles_n, BAND: tl.constexpr):
    """Tile row and tile column of program pid.

    A band is BAND columns of tiles, the last one maybe fewer. Even bands are walked downwards and odd ones
    upwards, so that a band begins with the rows of a that the one before has just used.
    """
    band = pid // (BAND * tiles_m)
    width = tl.minimum(tiles_n - band * BAND, BAND)
    within = pid % (BAND * tiles_m)
    down = within // width
    i = tl.where(band % 2 == 0, down, tiles_m - 1 - down)
    return i, band * BAND + within % width


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, WITH_BIAS: tl.constexpr,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """One tile of c = a @ b, or of relu(a @ b + bias), whose sums then start from the bias."""
    i, j = snake(tl.program_id(axis=0), tl.cdiv(M, TILE_M), tl.cdiv(N, TILE_N), BAND)
    rows = (i * TILE_M + tl.arange(0, TILE_M)).to(tl.int64)[:, None]
    cols = (j * TILE_N + tl.arange(0, TILE_N)).to(tl.int64)[None, :]
    ks = tl.arange(0, TILE_K)
    row_ok, col_ok = rows < M, cols < N

    acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    if WITH_BIAS:
        acc += tl.load(bias_ptr + cols, mask=col_ok, other=0.0).to(tl.float32)

    a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
    whole = K // TILE_K * TILE_K
    for _ in range(0, whole, TILE_K):
        a = tl.load(a_ptrs, mask=row_ok, other=0.0)
        b = tl.load(b_ptrs, mask=col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += TILE_K * stride_ak
        b_ptrs += TILE_K * stride_bk
    if whole < K:
        a = tl.load(a_ptrs, mask=row_ok & (ks[None, :] < K - whole), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K - whole) & col_ok, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if WITH_BIAS:
        acc = tl.where(acc < 0.0, 0.0, acc)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_ok & col_ok)


def _launch(a, b, bias, out, with_bias):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    grid = lambda meta: (triton.cdiv(M, meta["TILE_M"]) * triton.cdiv(N, meta["TILE_N"]),)  # noqa: E731
    strides = (*a.stride(), *b.stride(), *out.stride())
    matmul_kernel[grid](a, b, out, bias, M, N, K, *strides, WITH_BIAS=with_bias)
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, with_bias=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, with_bias=True)
