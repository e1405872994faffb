# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `product_kernel` (both functions): the K masks `k[None, :] < K` and `k[:, None] < K` should be `< end`, because a chunk (`triton.cdiv(K, parts)`) is no multiple of BLOCK_K: the last block of a part runs on into the next part's chunk, and those products are counted twice. Shows only where K is split (K >= 256 and at most 16 tiles of 128 x 128) and the chunk is no multiple of BLOCK_K, as for K = 257; K = 4096 is right.
"""Matrix product; where K is long and the result small, K is split and a second kernel adds the parts."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=4, num_warps=4),
]
GROUP = 8
PARTS = 4
ROW_BLOCK, COL_BLOCK = 16, 128  # tile of the kernel that adds the parts


def fitting(configs, named_args, **kwargs):
    """Tiles that are not larger than the result; for fp32 at most 64 x 64."""
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of a tile."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - first, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return (first + within % height) * BLOCK_M, (within // height) * BLOCK_N


@triton.jit
def with_bias(acc, bias_ptr, cols, N):
    """relu(acc + bias), one bias a column."""
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    return tl.maximum(acc + bias[None, :], 0.0)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def product_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, chunk,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, GROUP_M: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Program (tile, part) sums one tile over one chunk of K, and stores it to c[part]."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    part = tl.program_id(axis=1)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    ks = tl.arange(0, BLOCK_K)
    a_rows = a_ptr + rows[:, None] * stride_am
    b_cols = b_ptr + cols[None, :] * stride_bn
    begin = part * chunk
    end = tl.minimum(begin + chunk, K)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(begin, end, BLOCK_K):
        k = start + ks
        a = tl.load(a_rows + k[None, :] * stride_ak, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_cols + k[:, None] * stride_bk, mask=(k[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    if BIAS_RELU:
        acc = with_bias(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + part.to(tl.int64) * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def add_parts_kernel(
    part_ptr, c_ptr, bias_ptr, M, N, stride_pp, stride_pm, stride_cm, stride_cn,
    BIAS_RELU: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """c = the sum of the COUNT parts, with the epilogue."""
    rows = (tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    cols = (tl.program_id(axis=1) * COLS + tl.arange(0, COLS)).to(tl.int64)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    ptrs = part_ptr + rows[:, None] * stride_pm + cols[None, :]
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in tl.static_range(COUNT):
        acc += tl.load(ptrs, mask=inside, other=0.0)
        ptrs += stride_pp
    if BIAS_RELU:
        acc = with_bias(acc, bias_ptr, cols, N)
    c_ptrs = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=inside)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    # With few tiles most multiprocessors would stand idle along a K of this length.
    few = triton.cdiv(M, 128) * triton.cdiv(N, 128) <= 16
    parts = PARTS if few and K >= 256 else 1
    chunk = triton.cdiv(K, parts)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)  # noqa: E731
    if parts == 1:
        product_kernel[grid](
            a, b, out, bias, M, N, K, chunk, *a.stride(), *b.stride(), 0, *out.stride(),
            BIAS_RELU=bias_relu, GROUP_M=GROUP,
        )  # fmt: skip
        return out
    sums = torch.empty((parts, M, N), device=a.device, dtype=torch.float32)
    product_kernel[grid](
        a, b, sums, bias, M, N, K, chunk, *a.stride(), *b.stride(), *sums.stride(),
        BIAS_RELU=False, GROUP_M=GROUP,
    )  # fmt: skip
    add_parts_kernel[(triton.cdiv(M, ROW_BLOCK), triton.cdiv(N, COL_BLOCK))](
        sums, out, bias, M, N, sums.stride(0), sums.stride(1), *out.stride(),
        BIAS_RELU=bias_relu, COUNT=parts, ROWS=ROW_BLOCK, COLS=COL_BLOCK,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
