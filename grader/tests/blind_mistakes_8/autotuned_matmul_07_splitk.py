# labs/lab3_autotuned_matmul/autotuned_matmul.py | corner | `part_len = K // SPLIT` rounds down, so the last K % 4 products belong to no part; must be triton.cdiv(K, SPLIT). Shows in matmul where K is no multiple of 4.
"""Matrix product with K split among programs: partial sums go to fp32 memory, a second kernel adds them up."""

import torch
import triton
import triton.language as tl

SPLIT = 4  # parts of K

CONFIGS = [
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_stages=3, num_warps=8),
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_stages=3, num_warps=4),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16}, num_stages=2, num_warps=2),
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def part_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, part_len,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cp, stride_cm, stride_cn, BIAS_RELU: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The products of part p of K, p = program_id(1), stored as matrix p of c; with BIAS_RELU there is one part."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rows = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    cols = (tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    part = tl.program_id(1).to(tl.int64)
    low = part * part_len
    high = tl.minimum(low + part_len, K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(low, high, BLOCK_K):
        ks = k + tl.arange(0, BLOCK_K).to(tl.int64)
        a_mask = (rows[:, None] < M) & (ks[None, :] < high)
        b_mask = (ks[:, None] < high) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if BIAS_RELU:
        bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        acc = tl.maximum(acc + bias[None, :], 0.0)
    c_ptrs = c_ptr + part * stride_cp + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def add_parts_kernel(parts_ptr, c_ptr, M, N, stride_cm, stride_cn, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """c = the sum of PARTS contiguous fp32 matrices; a program has BLOCK columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    size = tl.cast(M, tl.int64) * N
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in range(PARTS):
        total += tl.load(parts_ptr + part * size + row * N + cols, mask=mask, other=0.0)
    tl.store(c_ptr + row * stride_cm + cols.to(tl.int64) * stride_cn, total.to(c_ptr.dtype.element_ty), mask=mask)


def _grid(M, N, parts):
    return lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]), parts)


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    parts = torch.empty((SPLIT, M, N), device=a.device, dtype=torch.float32)
    part_len = K // SPLIT
    part_kernel[_grid(M, N, SPLIT)](
        a, b, parts, a, M, N, K, part_len,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), parts.stride(0), parts.stride(1), parts.stride(2),
        BIAS_RELU=False,
    )  # fmt: skip
    add_parts_kernel[(M, triton.cdiv(N, 128))](parts, out, M, N, out.stride(0), out.stride(1), PARTS=SPLIT, BLOCK=128)
    return out


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel, so K stays in one piece here."""
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), device=a.device, dtype=a.dtype) if out is None else out
    part_kernel[_grid(M, N, 1)](
        a, b, out, bias, M, N, K, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), 0, out.stride(0), out.stride(1),
        BIAS_RELU=True,
    )  # fmt: skip
    return out
