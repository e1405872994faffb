"""EXPECT PASS from matmul and matmul_bias_relu: K is split where there are few tiles.

A small result has few tiles, and most of the GPU would be idle. If K is long, several programs share a tile:
each adds up a range of K and stores its fp32 sums to its own slice of a scratch tensor, and
`add_slices_kernel` adds the slices, always in the same order, so two runs agree to the last bit.
matmul_bias_relu stays one kernel.
"""

import torch
import triton
import triton.language as tl

STEP = 128  # a range of K is a multiple of this, and so of every BLOCK_K
SPLIT_FROM = 2048  # a shorter K is not split
FEW_TILES = 64  # tiles of 128 x 128

CONFIGS = [
    triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8}, num_stages=s, num_warps=w)
    for (m, n, k), (s, w) in {
        (128, 256, 64): (3, 8),
        (256, 128, 64): (3, 8),
        (128, 128, 64): (4, 8),
        (64, 128, 64): (4, 4),
        (64, 64, 32): (4, 4),
    }.items()
]


def fitting(configs, named_args, **kwargs):
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    return [c for c in configs if all(c.kwargs[name] <= size for name in ("BLOCK_M", "BLOCK_N"))] or configs[
        -1:
    ]


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K", "range_k"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, range_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (t, s) adds up K from s * range_k to (s + 1) * range_k - 1 for tile t, and stores slice s."""
    tile = tl.program_id(axis=0)
    slice_ = tl.program_id(axis=1)
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    in_group = GROUP_M * tiles_n
    first = tile // in_group * GROUP_M
    height = min(tiles_m - first, GROUP_M)
    m = (first + tile % in_group % height).to(tl.int64) * BLOCK_M
    n = (tile % in_group // height).to(tl.int64) * BLOCK_N

    begin = slice_ * range_k
    end = min(K, begin + range_k)
    rows = (m + tl.arange(0, BLOCK_M))[:, None]
    cols = (n + tl.arange(0, BLOCK_N))[None, :]
    ks = begin.to(tl.int64) + tl.arange(0, BLOCK_K)
    a_tile = a_ptr + rows * stride_am + ks[None, :] * stride_ak
    b_tile = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        lane = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_tile, mask=(rows < M) & (lane[None, :] < end), other=0.0)
        b = tl.load(b_tile, mask=(lane[:, None] < end) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias, 0.0)
    c_tile = c_ptr + slice_.to(tl.int64) * stride_cs + rows * stride_cm + cols * stride_cn
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_slices_kernel(
    slices_ptr, c_ptr, slices, M, N, stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """c = sum of the slices, (slices, M, N) fp32 and contiguous, rounded once."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (rows < M) & (cols < N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    here = slices_ptr + rows * N + cols
    for _ in range(slices):
        total += tl.load(here, mask=inside, other=0.0)
        here += tl.cast(M, tl.int64) * N
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _range_of(M: int, N: int, K: int) -> int:
    """How much of K a program adds up: all of it, or about an eighth."""
    if K < SPLIT_FROM or triton.cdiv(M, 128) * triton.cdiv(N, 128) >= FEW_TILES:
        return K
    return triton.cdiv(triton.cdiv(K, 8), STEP) * STEP


def _launch(a, b, c, bias, range_k, stride_cs, stride_cm, stride_cn, bias_relu):
    (M, K), N = a.shape, b.shape[1]

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), triton.cdiv(K, range_k)

    matmul_kernel[grid](
        a, b, c, bias, M, N, K, range_k,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), stride_cs, stride_cm, stride_cn,
        BIAS_RELU=bias_relu,
    )  # fmt: skip


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    range_k = _range_of(M, N, K)
    if range_k == K:
        _launch(a, b, out, a, K, 0, out.stride(0), out.stride(1), False)
        return out
    n_slices = triton.cdiv(K, range_k)
    slices = torch.empty((n_slices, M, N), device=a.device, dtype=torch.float32)
    _launch(a, b, slices, a, range_k, slices.stride(0), slices.stride(1), slices.stride(2), False)
    grid = (triton.cdiv(M, 32), triton.cdiv(N, 64))
    add_slices_kernel[grid](
        slices, out, n_slices, M, N, out.stride(0), out.stride(1), BLOCK_M=32, BLOCK_N=64, num_warps=4
    )
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    _launch(a, b, out, bias, a.shape[1], 0, out.stride(0), out.stride(1), True)
    return out
