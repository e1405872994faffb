# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product that divides K where the result is small and K is long, and then adds up in a fixed order."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 256, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=3, num_warps=8),
    triton.Config({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 64, "GROUP": 8}, num_stages=4, num_warps=4),
    triton.Config({"BM": 64, "BN": 64, "BK": 32, "GROUP": 8}, num_stages=3, num_warps=4),
]


def _keep(configs, named_args, **kwargs):
    edge = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    return [c for c in configs if max(c.kwargs["BM"], c.kwargs["BN"]) <= edge] or configs[-1:]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K", "parts"], prune_configs_by={"early_config_prune": _keep})
@triton.jit
def tile_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, parts,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Program (t, p) sums part p of K for tile t, and stores it in plane p of c."""
    t = tl.program_id(0)
    p = tl.program_id(1)

    tiles_n = tl.cdiv(N, BN)
    group = t // (GROUP * tiles_n)
    rows_left = tl.cdiv(M, BM) - group * GROUP
    height = tl.minimum(rows_left, GROUP)
    t = t % (GROUP * tiles_n)
    row = ((group * GROUP + t % height) * BM + tl.arange(0, BM)).to(tl.int64)
    col = ((t // height) * BN + tl.arange(0, BN)).to(tl.int64)
    row_in = (row < M)[:, None]
    col_in = (col < N)[None, :]

    # A part is a whole number of blocks; the last parts may be short, or empty.
    length = tl.cdiv(tl.cdiv(K, BK), parts) * BK
    first = p * length
    last = tl.minimum(first + length, K)
    a_rows = a_ptr + row[:, None] * stride_am
    b_cols = b_ptr + col[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(first, last, BK):
        i = (k + tl.arange(0, BK)).to(tl.int64)
        a = tl.load(a_rows + i[None, :] * stride_ak, mask=row_in & (i < K)[None, :], other=0.0)
        b = tl.load(b_cols + i[:, None] * stride_bk, mask=col_in & (i < K)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if EPILOGUE:
        bias = tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    plane = c_ptr + p.to(tl.int64) * stride_cp
    tl.store(
        plane + row[:, None] * stride_cm + col[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=row_in & col_in,
    )


@triton.jit
def add_kernel(
    planes_ptr, c_ptr, bias_ptr, M, N, parts, stride_cm, stride_cn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """c = the sum of the planes, in their order; planes are fp32 and contiguous, (parts, M, N)."""
    t = tl.program_id(0)
    tiles_n = tl.cdiv(N, BN)
    row = (t // tiles_n * BM + tl.arange(0, BM)).to(tl.int64)
    col = (t % tiles_n * BN + tl.arange(0, BN)).to(tl.int64)
    inside = (row < M)[:, None] & (col < N)[None, :]
    at = planes_ptr + row[:, None] * N + col[None, :]
    size = tl.cast(M, tl.int64) * N
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(parts):
        acc += tl.load(at, mask=inside, other=0.0)
        at += size
    if EPILOGUE:
        bias = tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    tl.store(
        c_ptr + row[:, None] * stride_cm + col[None, :] * stride_cn,
        acc.to(c_ptr.dtype.element_ty),
        mask=inside,
    )


def _how_many(M, N, K):
    """Parts of K: one where the tiles alone keep the GPU busy, or where K is short."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    return 1 if tiles >= 64 or K < 256 else min(8, triton.cdiv(K, 128))


def _product(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    parts = _how_many(M, N, K)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]), parts)  # noqa: E731
    if parts == 1:
        tile_kernel[grid](
            a, b, out, bias, M, N, K, 1, *a.stride(), *b.stride(), 0, *out.stride(), EPILOGUE=epilogue
        )
        return out
    planes = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)
    tile_kernel[grid](
        a, b, planes, bias, M, N, K, parts, *a.stride(), *b.stride(), *planes.stride(), EPILOGUE=False
    )
    add_kernel[(triton.cdiv(M, 16) * triton.cdiv(N, 64),)](
        planes, out, bias, M, N, parts, *out.stride(), EPILOGUE=epilogue, BM=16, BN=64
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, a, out, epilogue=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    return _product(a, b, bias, out, epilogue=True)
