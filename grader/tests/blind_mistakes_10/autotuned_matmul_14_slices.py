# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | for small results and long K, matmul cuts K into slices with fp32 sums of their own in a workspace, and a second kernel adds them up in a fixed order (no atomics); matmul_bias_relu always has one slice and one kernel.
"""Matrix product; where the result is small and K long, K is split among programs."""

import torch
import triton
import triton.language as tl


def _config(block_m, block_n, block_k, num_stages, num_warps):
    tile = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8}
    return triton.Config(tile, num_stages=num_stages, num_warps=num_warps)


CONFIGS = [
    _config(128, 256, 64, 3, 8),
    _config(256, 128, 64, 3, 8),
    _config(128, 128, 64, 3, 8),
    _config(64, 128, 64, 4, 4),
    _config(64, 64, 32, 4, 4),
]
ALIGN = 128  # slices begin at multiples of this, and so of every BLOCK_K


def fitting(configs, named_args, **kwargs):
    """Tiles no larger than the result, and small ones for fp32."""
    widest = 64 if named_args["a_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    in_group = GROUP_M * tl.cdiv(N, BLOCK_N)
    first = (tile // in_group) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)
    within = tile % in_group
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.autotune(
    configs=CONFIGS, key=["M", "N", "K", "depth"], prune_configs_by={"early_config_prune": fitting}
)
@triton.jit
def slice_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, depth,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_cs,
    BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """Program (i, s) sums the products of tile i from k = s * depth up to depth further on."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1).to(tl.int64)
    begin = part * depth
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = begin + tl.arange(0, BLOCK_K)
    row_exists = rows[:, None] < M
    col_exists = cols[None, :] < N
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak
    b_ptrs = b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn
    # What is left of K from the beginning of this slice on.
    size = tl.minimum(K - begin, depth).to(tl.int32)
    lanes = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, size, BLOCK_K):
        a = tl.load(a_ptrs, mask=row_exists & (lanes[None, :] < size - k), other=0.0)
        b = tl.load(b_ptrs, mask=col_exists & (lanes[:, None] < size - k), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part * stride_cs + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=row_exists & col_exists)


@triton.jit
def add_slices_kernel(parts_ptr, c_ptr, M, N, stride_cm, stride_cn, SLICES: tl.constexpr, BLOCK: tl.constexpr):
    """c = sum of the SLICES matrices of parts, (SLICES, M, N) fp32 and contiguous, in their order."""
    offs = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    size = tl.cast(M, tl.int64) * N
    exists = offs < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(0, SLICES):
        total += tl.load(parts_ptr + part * size + offs, mask=exists, other=0.0)
    c_ptrs = c_ptr + (offs // N) * stride_cm + (offs % N) * stride_cn
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=exists)


def _slices(M, N, K):
    """Number of slices of K, and their depth."""
    tiles = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    wanted = 1 if tiles > 64 or K < 1024 else min(8, K // 512)
    if wanted == 1:
        return 1, K
    depth = triton.cdiv(triton.cdiv(K, wanted), ALIGN) * ALIGN
    return triton.cdiv(K, depth), depth


def _multiply(a, b, c, bias, slices, depth, stride_slice, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    stride_cm, stride_cn = c.stride(c.dim() - 2), c.stride(c.dim() - 1)
    grid = lambda meta: (  # noqa: E731
        triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), slices
    )
    slice_kernel[grid](
        a, b, c, bias, M, N, K, depth,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), stride_cm, stride_cn, stride_slice,
        BIAS_RELU=bias_relu,
    )  # fmt: skip


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    slices, depth = _slices(M, N, K)
    if slices == 1:
        _multiply(a, b, out, a, 1, K, 0, False)
        return out
    parts = torch.empty((slices, M, N), device=a.device, dtype=torch.float32)
    _multiply(a, b, parts, a, slices, depth, M * N, False)
    add_slices_kernel[(triton.cdiv(M * N, 512),)](
        parts, out, M, N, out.stride(0), out.stride(1), SLICES=slices, BLOCK=512
    )
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    _multiply(a, b, out, bias, 1, K, 0, True)
    return out
