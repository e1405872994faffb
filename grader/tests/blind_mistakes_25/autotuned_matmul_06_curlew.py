# labs/lab3_autotuned_matmul/autotuned_matmul.py | right | right
"""Matmul with sums of sums: K is cut into chunks, each chunk is summed by itself, and then the chunks are added.

A long sum in fp32 loses a little at each step, because small products meet a large total. With chunks the products
meet only the sum of their own chunk. The tiles of c are walked like a field is ploughed, up and down.
"""

import torch
import triton
import triton.language as tl

BLOCKS_IN_CHUNK = 8


def _plan(block_m, block_n, block_k, num_stages, num_warps):
    return triton.Config(
        {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP_M": 8},
        num_stages=num_stages,
        num_warps=num_warps,
    )


# Two tiles of sums live in registers, so no tile is larger than 128 x 128, and that one has 8 warps.
CONFIGS = [
    _plan(128, 128, 64, num_stages=3, num_warps=8),
    _plan(128, 128, 32, num_stages=4, num_warps=8),
    _plan(128, 64, 64, num_stages=3, num_warps=8),
    _plan(64, 128, 64, num_stages=3, num_warps=8),
    _plan(64, 64, 32, num_stages=3, num_warps=4),
]


def fitting(configs, named_args, **kwargs):
    """The configs worth a try for these sizes: tiles no larger than the result, small ones for fp32."""
    widest = 64 if named_args["bias_ptr"].dtype == torch.float32 else 256
    size = min(named_args["M"], named_args["N"])
    kept = [c for c in configs if max(c.kwargs["BLOCK_M"], c.kwargs["BLOCK_N"]) <= min(widest, size)]
    return kept or configs[-1:]


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c.

    A strip is GROUP_M rows of tiles. Its even columns are walked down and its odd ones up; even strips are walked
    from left to right and odd ones from right to left. So each tile is next to the one before it.
    """
    across = tl.cdiv(N, BLOCK_N)
    strip = tile // (GROUP_M * across)
    top = strip * GROUP_M
    tall = min(tl.cdiv(M, BLOCK_M) - top, GROUP_M)
    nth = tile - top * across
    col = nth // tall
    row = nth % tall
    # x + odd * (last - 2 * x) is x where odd is 0, and counts from the other end where it is 1.
    row = row + (col % 2) * (tall - 1 - 2 * row)
    col = col + (strip % 2) * (across - 1 - 2 * col)
    return (top + row) * BLOCK_M, col * BLOCK_N


@triton.jit
def chunk_sum(
    a_rows, b_cols, start, stop, K, stride_ak, stride_bk, row_in, col_in,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The fp32 product of columns start to stop of a and the same rows of b, for one tile."""
    lane = tl.arange(0, BLOCK_K).to(tl.int64)
    part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(start, stop, BLOCK_K):
        across = (k + lane)[None, :]
        down = (k + lane)[:, None]
        a = tl.load(a_rows + across * stride_ak, mask=row_in & (across < K), other=0.0)
        b = tl.load(b_cols + down * stride_bk, mask=(down < K) & col_in, other=0.0)
        part = tl.dot(a, b, part, input_precision="ieee")
    return part


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, CHUNK: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """c = a @ b, or relu(a @ b + bias); program pid owns one BLOCK_M x BLOCK_N tile of c."""
    m, n = place(tl.program_id(axis=0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    row = (m + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    col = (n + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    row_in = row < M
    col_in = col < N
    a_rows = a_ptr + row * stride_am
    b_cols = b_ptr + col * stride_bn

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if BIAS_RELU:
        # The bias is one more summand, and it may as well be the first.
        total += tl.load(bias_ptr + col, mask=col_in, other=0.0).to(tl.float32)
    for start in range(0, K, CHUNK * BLOCK_K):
        stop = min(start + CHUNK * BLOCK_K, K)
        total += chunk_sum(
            a_rows, b_cols, start, stop, K, stride_ak, stride_bk, row_in, col_in, BLOCK_M, BLOCK_N, BLOCK_K
        )
    if BIAS_RELU:
        total = tl.maximum(total, 0.0)

    c_at = c_ptr + row * stride_cm + col * stride_cn
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=row_in & col_in)


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = a.new_empty((M, N))
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)](
        a, b, out, bias, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        BIAS_RELU=bias_relu, CHUNK=BLOCKS_IN_CHUNK,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once.

    The result goes to `out`, (M, N) of that dtype, any strides, where one is given. K may not be 0.
    """
    # Without the epilogue no bias is read; any tensor stands in for its pointer.
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
