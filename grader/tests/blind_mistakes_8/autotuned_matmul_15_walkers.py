# labs/lab3_autotuned_matmul/autotuned_matmul.py | honest | Right: at most 132 programs, each of which computes one tile after the other, with helper functions.
"""Matrix product by a fixed number of programs; each of them computes one tile of c after the other."""

import torch
import triton
import triton.language as tl

PROGRAMS = 132

CONFIGS = [
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_stages=3, num_warps=8),
    triton.Config({"BM": 64, "BN": 128, "BK": 32}, num_stages=4, num_warps=4),
    triton.Config({"BM": 16, "BN": 32, "BK": 32}, num_stages=2, num_warps=2),
]


@triton.jit
def spots(base, i, j, stride_i, stride_j):
    """Addresses of the elements (i, j); both may be blocks of numbers."""
    return base + i.to(tl.int64)[:, None] * stride_i + j.to(tl.int64)[None, :] * stride_j


@triton.jit
def fetch(base, i, j, stride_i, stride_j, size_i, size_j):
    """The elements (i, j), and 0 where there are none."""
    keep = (i < size_i)[:, None] & (j < size_j)[None, :]
    return tl.load(spots(base, i, j, stride_i, stride_j), mask=keep, other=0.0)


@triton.jit
def product(a_ptr, b_ptr, i, j, M, N, K, sam, sak, sbk, sbn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows i of a times columns j of b, in fp32."""
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        a = fetch(a_ptr, i, k, sam, sak, M, K)
        b = fetch(b_ptr, k, j, sbk, sbn, K, N)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    return acc


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def tiles_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
    EPILOGUE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Program p has the tiles p, p + programs, p + 2 * programs, ..., counted row by row."""
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        i = (tile // across) * BM + tl.arange(0, BM)
        j = (tile % across) * BN + tl.arange(0, BN)
        acc = product(a_ptr, b_ptr, i, j, M, N, K, sam, sak, sbk, sbn, BM, BN, BK)
        if EPILOGUE:
            bias = tl.load(bias_ptr + j, mask=j < N, other=0.0).to(tl.float32)
            acc += bias[None, :]
            acc = tl.maximum(acc, 0.0)
        keep = (i < M)[:, None] & (j < N)[None, :]
        tl.store(spots(c_ptr, i, j, scm, scn), acc.to(c_ptr.dtype.element_ty), mask=keep)


def _start(a, b, bias, out, epilogue):
    M, K = a.shape
    N = b.shape[1]
    if out is None:
        out = torch.empty((M, N), dtype=a.dtype, device=a.device)

    def grid(meta):
        return (min(PROGRAMS, triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"])),)

    tiles_kernel[grid](
        a, b, out, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1),
        EPILOGUE=epilogue,
    )  # fmt: skip
    return out


def matmul(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """a @ b for a (M, K) and b (K, N) of one dtype, bf16, fp16 or fp32, any strides; fp32 sums, rounded once."""
    return _start(a, b, a, out, False)


def matmul_bias_relu(a, b, bias, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """relu(a @ b + bias) in one kernel; bias is (N,) and contiguous, the rest as for matmul."""
    return _start(a, b, bias, out, True)
