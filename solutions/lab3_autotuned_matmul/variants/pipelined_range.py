"""EXPECT PASS from matmul: tl.range with its own stages, and addresses computed anew in each step."""

import torch
import triton
import triton.language as tl


@triton.jit
def pipelined_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    TILE: tl.constexpr, STEP: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    pid_m = tl.program_id(axis=1)
    pid_n = tl.program_id(axis=0)
    # Every index meets a stride, and their product may pass 2^31.
    i = tl.cast(pid_m * TILE + tl.arange(0, TILE), tl.int64)
    j = tl.cast(pid_n * TILE + tl.arange(0, TILE), tl.int64)
    p = tl.cast(tl.arange(0, STEP), tl.int64)
    i, j = tl.expand_dims(i, 1), tl.expand_dims(j, 0)
    c = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in tl.range(0, K, STEP, num_stages=DEPTH, warp_specialize=False, disallow_acc_multi_buffer=False):
        q = k + p
        a_at = a_ptr + i * stride_am + q[None, :] * stride_ak
        b_at = b_ptr + q[:, None] * stride_bk + j * stride_bn
        left = tl.load(a_at, mask=(i < M) & (q < K)[None, :], other=0.0)
        right = tl.load(b_at, mask=(q < K)[:, None] & (j < N), other=0.0)
        c += tl.dot(left, right, input_precision="ieee", out_dtype=tl.float32)
    tl.store(c_ptr + i * stride_cm + j * stride_cn, c.to(c_ptr.type.element_ty), mask=(i < M) & (j < N))


def matmul(a, b, *, out=None):
    if out is None:
        out = torch.empty((a.size(0), b.size(1)), dtype=a.dtype, device=a.device)
    rows, cols = out.shape
    pipelined_kernel[(triton.cdiv(cols, 64), triton.cdiv(rows, 64), 1)](
        a, b, out, rows, cols, a.size(1),
        *a.stride(), *b.stride(), *out.stride(), TILE=64, STEP=32, DEPTH=3,
    )  # fmt: skip
    return out
