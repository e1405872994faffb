"""EXPECT WRONG/MISMATCH from matmul, hint 2: S19 rows of A step by stride_ak, columns by stride_am"""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for k in range(0, K, BLOCK):
        kk = k + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + i[:, None] * stride_ak + kk[None, :] * stride_am,
            mask=(i[:, None] < M) & (kk[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + kk[:, None] * stride_bk + j[None, :] * stride_bn,
            mask=(kk[:, None] < K) & (j[None, :] < N),
            other=0.0,
        )
        acc += tl.dot(a, b, input_precision="ieee")
    out_ptrs = out_ptr + i[:, None] * stride_om + j[None, :] * stride_on
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


def matmul(a, b, *, out=None):
    if out is None:
        out = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    grid = tuple(triton.cdiv(side, 32) for side in out.shape)
    matmul_kernel[grid](a, b, out, *out.shape, a.shape[1], *a.stride(), *b.stride(), *out.stride(), BLOCK=32)
    return out
