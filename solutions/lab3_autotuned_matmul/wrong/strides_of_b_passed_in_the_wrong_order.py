"""EXPECT WRONG/MISMATCH from matmul, hint 2: S19 the launch passes b.stride(1) first"""

import torch
import triton
import triton.language as tl


def _configs():
    return [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 32}, num_stages=3, num_warps=4)
        for m, n in ((64, 64), (64, 32), (32, 64))
    ]


@triton.autotune(configs=_configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    col = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    ka = tl.arange(0, BLOCK_K)[None, :]
    kb = tl.arange(0, BLOCK_K)[:, None]
    pa = a_ptr + row * stride_am + ka * stride_ak
    pb = b_ptr + kb * stride_bk + col * stride_bn
    c = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    left = K
    while left > 0:
        a = tl.load(pa, mask=(row < M) & (ka < left), other=0.0)
        b = tl.load(pb, mask=(kb < left) & (col < N), other=0.0)
        c = tl.dot(a, b, c, input_precision="ieee")
        pa += BLOCK_K * stride_ak
        pb += BLOCK_K * stride_bk
        left -= BLOCK_K
    tl.store(
        c_ptr + row * stride_cm + col * stride_cn, c.to(c_ptr.dtype.element_ty), mask=(row < M) & (col < N)
    )


def matmul(a, b, *, out=None):
    M, K = a.shape
    _, N = b.shape
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))  # noqa: E731
    matmul_kernel[grid](
        a, b, out,
        M, N, K,
        a.stride(0), a.stride(1),
        b.stride(1), b.stride(0),
        out.stride(0), out.stride(1),
    )  # fmt: skip
    return out
