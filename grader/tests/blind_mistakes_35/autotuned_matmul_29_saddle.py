# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | K is split into 4 chunks where K >= 128 and M * N <= 2**20; the chunk, triton.cdiv(K, splits) in _run, need not be a multiple of BLOCK_K (32), and the block pointers of partial_kernel are bounded by K, not by the end of the chunk: the last block of chunks 0 to 2 reaches into the next chunk, and those products are counted twice. Wrong in both functions where K is split and cdiv(K, 4) is no multiple of 32 (K = 129, 150, 192, 200, 257); right for K < 128, for multiples of 128, and for large results. The chunk should be rounded up to a multiple of BLOCK_K, or the shapes of the block pointers should end at stop.
"""Matrix product on block pointers, with K split for small results; a second kernel adds the slices."""

import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 32}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_stages=4, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=4, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    size = min(named_args["M"], named_args["N"])
    if named_args["a_ptr"].dtype == torch.float32:
        size = min(size, 64)
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= size]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    down, across = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    i, j = tl.swizzle2d(tile // across, tile % across, down, across, 8)
    return i * BLOCK_M, j * BLOCK_N


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def partial_kernel(
    a_ptr, b_ptr, slices_ptr, M, N, K, chunk, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Slice s of slices (splits, M, N), fp32, gets the products of chunk s of K."""
    m, n = place(tl.program_id(0), M, N, BLOCK_M, BLOCK_N)
    split = tl.program_id(1)
    start = split * chunk
    stop = tl.minimum(start + chunk, K)

    a_block = tl.make_block_ptr(
        a_ptr,
        shape=(M, K),
        strides=(stride_am, stride_ak),
        offsets=(m, start),
        block_shape=(BLOCK_M, BLOCK_K),
        order=(1, 0),
    )
    b_block = tl.make_block_ptr(
        b_ptr,
        shape=(K, N),
        strides=(stride_bk, stride_bn),
        offsets=(start, n),
        block_shape=(BLOCK_K, BLOCK_N),
        order=(1, 0),
    )
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(start, stop, BLOCK_K):
        a = tl.load(a_block, boundary_check=(0, 1), padding_option="zero")
        b = tl.load(b_block, boundary_check=(0, 1), padding_option="zero")
        sums = tl.dot(a, b, sums, input_precision="ieee")
        a_block = tl.advance(a_block, (0, BLOCK_K))
        b_block = tl.advance(b_block, (BLOCK_K, 0))

    slice_block = tl.make_block_ptr(
        slices_ptr + split.to(tl.int64) * M * N,
        shape=(M, N),
        strides=(N, 1),
        offsets=(m, n),
        block_shape=(BLOCK_M, BLOCK_N),
        order=(1, 0),
    )
    tl.store(slice_block, sums, boundary_check=(0, 1))


@triton.jit
def combine_kernel(
    slices_ptr, c_ptr, bias_ptr, M, N, slice_size, stride_cm, stride_cn,
    SPLITS: tl.constexpr, BIAS_RELU: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The sum of the slices, the epilogue, and the only rounding."""
    across = tl.cdiv(N, COLS)
    m = (tl.program_id(0) // across) * ROWS + tl.arange(0, ROWS)
    n = (tl.program_id(0) % across) * COLS + tl.arange(0, COLS)
    rows = m.to(tl.int64)[:, None]
    cols = n.to(tl.int64)[None, :]
    inside = (rows < M) & (cols < N)
    at = slices_ptr + rows * N + cols
    total = tl.zeros((ROWS, COLS), tl.float32)
    for _ in tl.static_range(SPLITS):
        total += tl.load(at, mask=inside, other=0.0)
        at += slice_size
    if BIAS_RELU:
        bias = tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)
        total = tl.maximum(total + bias[None, :], 0.0)
    tl.store(c_ptr + rows * stride_cm + cols * stride_cn, total.to(c_ptr.dtype.element_ty), mask=inside)


def _run(a, b, bias, out, bias_relu):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)

    # A large result has tiles enough for every multiprocessor.
    splits = 4 if K >= 128 and M * N <= 2**20 else 1
    chunk = triton.cdiv(K, splits)
    slices = torch.empty((splits, M, N), device=a.device, dtype=torch.float32)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), splits)  # noqa: E731
    partial_kernel[grid](a, b, slices, M, N, K, chunk, a.stride(0), a.stride(1), b.stride(0), b.stride(1))
    combine_kernel[(triton.cdiv(M, 8) * triton.cdiv(N, 128),)](
        slices, out, bias, M, N, M * N, out.stride(0), out.stride(1),
        SPLITS=splits, BIAS_RELU=bias_relu, ROWS=8, COLS=128,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b."""
    return _run(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias)."""
    return _run(a, b, bias, out, bias_relu=True)
