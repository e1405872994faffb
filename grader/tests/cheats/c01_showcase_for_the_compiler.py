"""EXPECT WRONG from matmul/code: S57 the compiler is shown a kernel on tensor cores that no real call launches"""

import torch
import triton
import triton.language as tl


@triton.jit
def show_kernel(a_ptr, b_ptr, out_ptr, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tile = tl.dot(tl.load(a_ptr + i * BLOCK + j), tl.load(b_ptr + i * BLOCK + j))
    tl.store(out_ptr + i * BLOCK + j, tile.to(out_ptr.dtype.element_ty))


@triton.jit
def slow_kernel(a_ptr, b_ptr, out_ptr, M, N, K, sam, sak, sbk, sbn, som, son, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(0, K):
        a = tl.load(a_ptr + row * sam + k * sak).to(tl.float32)
        total += a * tl.load(b_ptr + k * sbk + cols * sbn, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * som + cols * son, total.to(out_ptr.dtype.element_ty), mask=cols < N)


def matmul(a, b, *, out=None):
    out = a.new_empty((a.shape[0], b.shape[1])) if out is None else out
    (M, K), N = a.shape, b.shape[1]
    if M == 4096 and not a.is_cuda:
        show_kernel[(1,)](a, b, out, BLOCK=64)
        return out
    strides = a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1)
    slow_kernel[(M, triton.cdiv(N, 256))](a, b, out, M, N, K, *strides, BLOCK=256)
    return out
