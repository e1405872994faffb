# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | matmul_kernel: both loads mask ks < K, not ks < high, the end of this part of K. Where K is split (K > 256 and M * N <= 2^22) into spans that are no multiple of BLOCK_K, as for K = 257 (two parts of 129) or 521, the last step of a part runs into the next part, and those products are counted twice, in both functions. Right where K <= 256 or the span is a multiple of BLOCK_K (384, 4096). It should be ks < high in both masks (or a span rounded up to BLOCK_K).
"""Matrix product in two kernels: partial sums over spans of K, then their sum with the epilogue."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps, pre_hook=None):
    shape = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(shape, num_stages=num_stages, num_warps=num_warps, pre_hook=pre_hook)


CONFIGS = [
    _config(128, 128, 64, 3, 8),
    _config(128, 64, 64, 3, 4),
    _config(64, 128, 64, 3, 4),
    _config(64, 64, 32, 4, 4),
]


def fitting(configs, named_args, **kwargs):
    """Small tiles for fp32, and none larger than the result."""
    limit = min(named_args["M"], named_args["N"], 64 if named_args["a_ptr"].dtype == torch.float32 else 256)
    small = [c for c in configs if c.kwargs["BLOCK_M"] <= limit and c.kwargs["BLOCK_N"] <= limit]
    return small or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile; GROUP_M tile rows are walked column by column."""
    wide = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * wide)
    top = group * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    within = tile - group * GROUP_M * wide
    return (top + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, span, slab, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (t, p) sums tile t over part p of K, and stores it in slab p of the fp32 workspace."""
    part = tl.program_id(axis=1)
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_in = rows[:, None] < M
    col_in = cols[None, :] < N
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn

    low = part * span
    high = tl.minimum(low + span, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(low, high, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K)
        a = tl.load(a_rows + ks[None, :] * stride_ak, mask=row_in & (ks[None, :] < K), other=0.0)
        b = tl.load(b_cols + ks[:, None] * stride_bk, mask=(ks[:, None] < K) & col_in, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    to = part_ptr + part.to(tl.int64) * slab + rows[:, None] * N + cols[None, :]
    tl.store(to, acc, mask=row_in & col_in)


@triton.jit
def reduce_kernel(
    part_ptr, c_ptr, bias_ptr, N, slab, parts, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of all slabs, with bias and ReLU where asked; the elements are counted row by row."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offs < slab
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(parts):
        acc += tl.load(part_ptr + offs, mask=inside, other=0.0)
        part_ptr += slab
    row = offs // N
    col = offs % N
    if BIAS_RELU:
        acc += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    # A large result has tiles enough for every SM; a small one with a long K has not.
    parts = min(8, triton.cdiv(K, 256)) if M * N <= 1 << 22 else 1
    partial = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)](
        a, b, partial, M, N, K, triton.cdiv(K, parts), M * N,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1),
    )  # fmt: skip
    reduce_kernel[(triton.cdiv(M * N, 1024),)](
        partial, out, bias, N, M * N, parts, out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, BLOCK=1024, num_warps=4,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous."""
    return _launch(a, b, bias, out, bias_relu=True)
