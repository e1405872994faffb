"""EXPECT WRONG from matmul/code: C1 the kernel's tl.dot lies in a loop behind a branch that no call takes"""

import triton
import triton.language as tl


@triton.jit
def sum_kernel(a_ptr, b_ptr, out_ptr, M, N, K, sam, sak, sbk, sbn, som, son, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if M < 0:
        i, j = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
        tile = tl.zeros((64, 64), tl.float32)
        for k in range(0, K, 64):
            tile = tl.dot(tl.load(a_ptr + i * sam + k + j), tl.load(b_ptr + (k + i) * sbk + j), tile)
        tl.store(out_ptr + i * som + j * son, tile.to(out_ptr.dtype.element_ty))
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + row * sam + k * sak).to(tl.float32)
        total += a * tl.load(b_ptr + k * sbk + cols * sbn, mask=cols < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * som + cols * son, total.to(out_ptr.dtype.element_ty), mask=cols < N)


def matmul(a, b, *, out=None):
    out = a.new_empty((a.shape[0], b.shape[1])) if out is None else out
    (M, K), N = a.shape, b.shape[1]
    strides = a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1)
    sum_kernel[(M, triton.cdiv(N, 256))](a, b, out, M, N, K, *strides, BLOCK=256)
    return out
