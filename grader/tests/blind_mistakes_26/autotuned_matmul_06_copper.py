# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matrix product and its fused epilogue. Small results with a long K are summed in slices.

Where c has few tiles, K is cut into slices. Each slice has its own fp32 matrix in a workspace, and a second
kernel adds these up in order. Nothing is added atomically, so two runs give the same bits.
"""

import torch
import triton
import triton.language as tl

FEW_TILES = 16  # of 64 x 64
SLICE = 512  # the shortest slice of K, a multiple of every BLOCK_K
MOST_SLICES = 16


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(*numbers)
    for numbers in (
        (128, 256, 64, 3, 8),
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 3, 8),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 3, 4),
    )
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"], widest)
    kept = [c for c in configs if c.kwargs["BLOCK_M"] <= size and c.kwargs["BLOCK_N"] <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    # `first` whole rows of tiles lie before this group.
    within = tile - first * tiles_n
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def finish(sums, bias_ptr, cols, N):
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(sums + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, slice_k,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """One tile of the product of one slice of K; stride_cs leads from slice to slice of c."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    begin = tl.program_id(1) * slice_k
    end = tl.minimum(begin + slice_k, K)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K).to(tl.int64)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_at = a_ptr + rows[:, None] * stride_am + (begin + ks)[None, :] * stride_ak
    b_at = b_ptr + (begin + ks)[:, None] * stride_bk + cols[None, :] * stride_bn
    step = tl.full((), BLOCK_K, tl.int64)

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(begin, end, BLOCK_K):
        a_block = tl.load(a_at, mask=row_exists & (ks[None, :] < end - k), other=0.0)
        b_block = tl.load(b_at, mask=(ks[:, None] < end - k) & col_exists, other=0.0)
        sums = tl.dot(a_block, b_block, sums, input_precision="ieee")
        a_at += step * stride_ak
        b_at += step * stride_bk

    if BIAS_RELU:
        sums = finish(sums, bias_ptr, cols, N)
    c_ptr += tl.program_id(1).to(tl.int64) * stride_cs
    tl.store(
        c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn,
        sums.to(c_ptr.dtype.element_ty),
        mask=row_exists & col_exists,
    )


@triton.jit
def collect_kernel(
    slices_ptr, c_ptr, bias_ptr, M, N, slices, stride_sm, stride_sn, stride_ss, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """c = the sum of the slices, with the epilogue where BIAS_RELU."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    at = slices_ptr + rows[:, None] * stride_sm + cols[None, :] * stride_sn
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for one in range(0, slices):
        sums += tl.load(at, mask=inside, other=0.0)
        at += stride_ss
    if BIAS_RELU:
        sums = finish(sums, bias_ptr, cols, N)
    c_at = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_at, sums.to(c_ptr.dtype.element_ty), mask=inside)


def _slice_length(M, N, K):
    """How much of K a program sums: all of it, unless there are too few tiles to fill a GPU."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    if tiles > FEW_TILES or K < 2 * SLICE:
        return K
    return triton.cdiv(K, SLICE * MOST_SLICES) * SLICE


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    slice_k = _slice_length(M, N, K)
    slices = triton.cdiv(K, slice_k)

    def tiles(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), slices)

    if slices == 1:
        matmul_kernel[tiles](
            a, b, out, bias, M, N, K, slice_k,
            *a.stride(), *b.stride(), 0, *out.stride(), BIAS_RELU=bias_relu,
        )  # fmt: skip
        return out

    parts = torch.empty((slices, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[tiles](
        a, b, parts, bias, M, N, K, slice_k,
        *a.stride(), *b.stride(), *parts.stride(), BIAS_RELU=False,
    )  # fmt: skip
    collect_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 64))](
        parts, out, bias, M, N, slices,
        parts.stride(1), parts.stride(2), parts.stride(0), *out.stride(),
        BIAS_RELU=bias_relu, BLOCK_M=16, BLOCK_N=64,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the last kernel of the call has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
