# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product; a small result with a long K is split along K, and a second kernel adds up the shares."""

import torch
import triton
import triton.language as tl


def _tile(bm, bn, bk, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk, "GROUP": 8}, num_stages=stages, num_warps=warps)


TILES = [
    _tile(128, 128, 64, 3, 8),
    _tile(64, 128, 64, 4, 4),
    _tile(128, 64, 64, 4, 4),
    _tile(64, 64, 32, 4, 4),
]


def small_enough(configs, named_args, **kwargs):
    limit = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    limit = min(limit, named_args["M"], named_args["N"])
    kept = [c for c in configs if c.kwargs["BM"] <= limit and c.kwargs["BN"] <= limit]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    """First row and first column of a tile, in groups of GROUP rows of tiles."""
    per_group = GROUP * tl.cdiv(N, BN)
    first = tile // per_group * GROUP
    height = tl.minimum(tl.cdiv(M, BM) - first, GROUP)
    within = tile % per_group
    return (first + within % height) * BM, within // height * BN


@triton.autotune(configs=TILES, key=["M", "N", "K"], prune_configs_by={"early_config_prune": small_enough})
@triton.jit
def share_kernel(
    a_ptr, b_ptr, dest_ptr, bias_ptr, M, N, K, share,
    stride_am, stride_ak, stride_bk, stride_bn, stride_dz, stride_dm, stride_dn, BIAS_RELU: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Program (tile, z) sums the indices of K from z * share on, `share` of them or what is left."""
    m, n = place(tl.program_id(0), M, N, BM, BN, GROUP)
    z = tl.program_id(1)
    begin = z * share
    end = tl.minimum(begin + share, K)

    rows = (m + tl.arange(0, BM)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BN)).to(tl.int64)[None, :]
    lane = tl.arange(0, BK)
    ks = (begin + lane).to(tl.int64)
    a_at = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_at = b_ptr + ks[:, None] * stride_bk + cols * stride_bn

    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(begin, end, BK):
        a = tl.load(a_at, mask=(rows < M) & (lane[None, :] < end - k), other=0.0)
        b = tl.load(b_at, mask=(lane[:, None] < end - k) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += BK * stride_ak
        b_at += BK * stride_bk

    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    dest = dest_ptr + z.to(tl.int64) * stride_dz + rows * stride_dm + cols * stride_dn
    tl.store(dest, acc.to(dest_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_up_kernel(
    shares_ptr, c_ptr, bias_ptr, M, N, splits, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr
):
    """c = the sum of the shares, (splits, M, N) in fp32, with the epilogue; BLOCK columns of a row a program."""
    row = tl.program_id(0).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    inside = cols < N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for z in range(splits):
        total += tl.load(shares_ptr + (z * M + row) * N + cols, mask=inside, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + row * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _share_of(M, N, K):
    """Indices of K for each program: all of them, unless the tiles are few and K is long."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    if tiles >= 64 or K < 512:
        return K
    return triton.cdiv(triton.cdiv(K, min(8, K // 256)), 64) * 64


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    share = _share_of(M, N, K)
    splits = triton.cdiv(K, share)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), splits)  # noqa: E731
    sources = a.stride(0), a.stride(1), b.stride(0), b.stride(1)
    if splits == 1:
        share_kernel[grid](
            a, b, out, bias, M, N, K, share, *sources, 0, out.stride(0), out.stride(1), BIAS_RELU=bias_relu
        )
        return out
    shares = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    share_kernel[grid](a, b, shares, bias, M, N, K, share, *sources, M * N, N, 1, BIAS_RELU=False)
    add_up_kernel[(M, triton.cdiv(N, 128))](
        shares, out, bias, M, N, splits, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=128
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b in fp32 sums, rounded once, to `out` where one is given."""
    return _launch(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the epilogue belongs to the last kernel."""
    return _launch(a, b, bias, out, True)
