"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 6: the bias is added inside the loop over K"""

import torch
import triton
import triton.language as tl


@triton.jit
def fused(a_ptr, b_ptr, bias_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    l = tl.arange(0, BLOCK)  # noqa: E741
    row_ok = i < M
    col_ok = j < N
    bias = tl.load(bias_ptr + j, mask=col_ok, other=0.0)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        k_ok = l + k < K
        a = tl.load(
            a_ptr + i[:, None] * am + (k + l)[None, :] * ak, row_ok[:, None] & k_ok[None, :], other=0.0
        )
        b = tl.load(
            b_ptr + (k + l)[:, None] * bk + j[None, :] * bn, k_ok[:, None] & col_ok[None, :], other=0.0
        )
        acc += tl.dot(a, b, input_precision="ieee") + bias[None, :]
    acc = tl.maximum(acc, 0.0)
    tl.store(c_ptr + i[:, None] * cm + j[None, :] * cn, acc, mask=row_ok[:, None] & col_ok[None, :])


def matmul_bias_relu(a, b, bias, *, out=None):
    (M, K), N = a.shape, b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    am, ak = a.stride()
    bk, bn = b.stride()
    cm, cn = out.stride()
    fused[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        a, b, bias, out, M, N, K, am, ak, bk, bn, cm, cn, BLOCK=64
    )
    return out
