# labs/lab3_autotuned_matmul/autotuned_matmul.py | wrong everywhere | gather_kernel starts its total from zeros but loops over range(1, splits), so share 0 of the sums is never added: with one split (nearly all sizes) the product is all zero, and relu(bias) in matmul_bias_relu; with several splits every splits-th block of K is missing; shows in every case of both functions; it should be range(splits)
"""Matrix product in two kernels: the first sums shares of K into fp32, the second gathers the shares."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 64}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and first column of a tile; eight rows of tiles are walked column by column."""
    group = 8 * tl.cdiv(N, BLOCK_N)
    first = (tile // group) * 8
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, 8)
    return (first + tile % group % height) * BLOCK_M, (tile % group // height) * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def scatter_kernel(
    a_ptr, b_ptr, shares_ptr, M, N, K, splits, size,
    stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (tile, s) multiplies the blocks s, s + splits, s + 2 * splits, ... of K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    s = tl.program_id(1)
    i = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(s * BLOCK_K, K, splits * BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a = tl.load(a_ptr + i * stride_am + k[None, :] * stride_ak, mask=(i < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + j * stride_bn, mask=(k[:, None] < K) & (j < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(shares_ptr + s.to(tl.int64) * size + i * N + j, acc, mask=(i < M) & (j < N))


@triton.jit
def gather_kernel(
    shares_ptr, c_ptr, bias_ptr, N, size, splits, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One value of c for each lane: the sum of its shares, with the epilogue."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in range(1, splits):
        total += tl.load(shares_ptr + s * size + index, mask=inside, other=0.0)
    row = index // N
    col = index % N
    if BIAS_RELU:
        total += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + row * stride_cm + col * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    few = triton.cdiv(M, 64) * triton.cdiv(N, 64) < 64
    splits = max(1, min(8, K // 512)) if few else 1
    size = M * N
    shares = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)

    def grid(meta):
        return triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits

    scatter_kernel[grid](
        a, b, shares, M, N, K, splits, size, a.stride(0), a.stride(1), b.stride(0), b.stride(1)
    )
    gather_kernel[(triton.cdiv(size, 1024),)](
        shares, out, bias, N, size, splits, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=1024
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); the second kernel has the epilogue."""
    return _launch(a, b, bias, out, bias_relu=True)
