# labs/lab3_autotuned_matmul/autotuned_matmul.py | two mistakes | (1) product_kernel gives each split chunk = K // splits values of k, rounded down: where K is not a multiple of splits the last K % splits products are missing; it should be tl.cdiv, with the end at most K. (2) finish_kernel computes relu(sum) + bias (tl.maximum before the bias is added) in place of relu(sum + bias): matmul_bias_relu is wrong wherever a sum or sum + bias is negative.
"""Matrix product for few tiles and long K: programs that share a tile add to one fp32 matrix, atomically."""

import torch
import triton
import triton.language as tl

MOST_SPLITS = 8
ENOUGH_TILES = 128  # about the number of SMs: with so many tiles K is not split


@triton.jit
def place(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """First row and first column of one of the tiles of c."""
    across = tl.cdiv(N, BLOCK_N)
    group = tile // (GROUP_M * across)
    left_over = tile % (GROUP_M * across)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    return (group * GROUP_M + left_over % height) * BLOCK_M, (left_over // height) * BLOCK_N


@triton.jit
def product_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K, splits,
    stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """sum += a[:, lo:hi] @ b[lo:hi, :]; sum is a contiguous fp32 matrix that starts at 0."""
    pid = tl.program_id(axis=0)
    tile = pid // splits
    split = pid % splits
    m, n = place(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = (m + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (n + tl.arange(0, BLOCK_N)).to(tl.int64)
    row_mask = rows < M
    col_mask = cols < N
    lanes = tl.arange(0, BLOCK_K).to(tl.int64)

    chunk = K // splits
    lo = split * chunk
    hi = lo + chunk

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(lo, hi, BLOCK_K):
        ks = k + lanes
        k_mask = ks < hi
        a_at = a_ptr + (rows[:, None] * stride_am + ks[None, :] * stride_ak)
        b_at = b_ptr + (ks[:, None] * stride_bk + cols[None, :] * stride_bn)
        a = tl.load(a_at, mask=row_mask[:, None] & k_mask[None, :], other=0.0)
        b = tl.load(b_at, mask=k_mask[:, None] & col_mask[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")

    tl.atomic_add(
        sum_ptr + rows[:, None] * N + cols[None, :], acc, mask=row_mask[:, None] & col_mask[None, :], sem="relaxed"
    )


@triton.jit
def finish_kernel(sum_ptr, c_ptr, bias_ptr, total, N, stride_cm, stride_cn, BIAS_RELU: tl.constexpr, BLOCK: tl.constexpr):
    """Bias, ReLU, rounding; element i of the flat sums is row i // N, column i % N."""
    i = tl.program_id(axis=0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ok = i < total
    row = i // N
    col = i % N
    value = tl.load(sum_ptr + i, mask=ok, other=0.0)
    if BIAS_RELU:
        bias = tl.load(bias_ptr + col, mask=ok, other=0.0).to(tl.float32)
        value = tl.maximum(value, 0.0) + bias
    tl.store(c_ptr + row * stride_cm + col * stride_cn, value.to(c_ptr.dtype.element_ty), mask=ok)


def _blocks(M, N, dtype):
    """BLOCK_M, BLOCK_N, BLOCK_K and warps; fp32 has no tensor cores and takes the small tile."""
    if dtype == torch.float32 or min(M, N) < 128:
        return 64, 64, 32, 4
    return 128, 128, 64, 8


def _launch(a, b, bias, out, bias_relu):
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out

    block_m, block_n, block_k, warps = _blocks(M, N, a.dtype)
    tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    splits = 1 if tiles >= ENOUGH_TILES else min(MOST_SPLITS, triton.cdiv(K, 64))

    sums = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    product_kernel[(tiles * splits,)](
        a, b, sums, M, N, K, splits,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP_M=8, num_warps=warps, num_stages=3,
    )  # fmt: skip
    finish_kernel[(triton.cdiv(M * N, 1024),)](
        sums, out, bias, M * N, N, out.stride(0), out.stride(1), BIAS_RELU=bias_relu, BLOCK=1024, num_warps=4
    )
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, any strides; fp32 sums, rounded once."""
    return _launch(a, b, a, out, bias_relu=False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias); bias is (N,) and contiguous, the rest as for matmul."""
    return _launch(a, b, bias, out, bias_relu=True)
