# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | the workspace of partial sums has the dtype of a: `_launch` allocates it by `a.new_empty((M, N, SPLIT))`, so in fp16 and bf16 each partial sum is rounded to 16 bits (and is inf beyond 65504 in fp16) before the parts are added. Shows in fp16 and bf16, in matmul where K has more than one block of 32, in matmul_bias_relu for any K: clearly with whole numbers whose sums are exact in fp32, and by lost digits elsewhere; fp32 is right. It should be `a.new_empty((M, N, SPLIT), dtype=torch.float32)`
"""Matrix product with K dealt out to four programs, and a second kernel that adds their parts up."""

import torch
import triton
import triton.language as tl

SPLIT = 4

CONFIGS = [
    triton.Config({"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=4, num_warps=warps)
    for bm, bn, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 64, 4), (64, 64, 4))
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def parts_kernel(
    a_ptr, b_ptr, parts_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """parts[i, j, p] = the products of the blocks p, p + PARTS, p + 2 PARTS, ... of K for c[i, j]."""
    pid = tl.program_id(axis=0)
    part = pid % PARTS
    m, n = place(pid // PARTS, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(part * BLOCK_K, K, PARTS * BLOCK_K):
        ks = (k + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_ptrs = a_ptr + rows * stride_am + ks[None, :] * stride_ak
        b_ptrs = b_ptr + ks[:, None] * stride_bk + cols * stride_bn
        a = tl.load(a_ptrs, mask=(rows < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=(ks[:, None] < K) & (cols < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    spots = parts_ptr + (rows * N + cols) * PARTS + part
    tl.store(spots, acc.to(parts_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


@triton.jit
def add_kernel(
    parts_ptr, c_ptr, bias_ptr, N, count, stride_cm, stride_cn,
    PARTS: tl.constexpr, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """c = the sum of the parts, with the epilogue where it is asked for."""
    spots = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = spots < count
    rows = spots // N
    cols = spots - rows * N
    columns_of_parts = spots[:, None] * PARTS + tl.arange(0, PARTS)[None, :]
    parts = tl.load(parts_ptr + columns_of_parts, mask=inside[:, None], other=0.0).to(tl.float32)
    total = tl.sum(parts, axis=1)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias, 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = a.new_empty((M, N)) if out is None else out
    parts = a.new_empty((M, N, SPLIT))
    grid = lambda meta: (SPLIT * triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)  # noqa: E731
    parts_kernel[grid](
        a, b, parts, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), PARTS=SPLIT
    )
    add_kernel[(triton.cdiv(M * N, 512),)](
        parts, out, bias, N, M * N, out.stride(0), out.stride(1), PARTS=SPLIT, BIAS_RELU=bias_relu, BLOCK=512
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
