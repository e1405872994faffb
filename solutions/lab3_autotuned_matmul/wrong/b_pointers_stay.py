"""EXPECT WRONG/MISMATCH from matmul, hint 3: S20 only the pointers of A move along K"""

import torch
import triton
import triton.language as tl


@triton.jit
def mm_kernel(a_ptr, b_ptr, c_ptr, M, N, K, a_row, a_col, b_row, b_col, c_row, c_col, B: tl.constexpr):
    top = tl.program_id(0) * B
    left = tl.program_id(1) * B
    lane = tl.arange(0, B)
    a_tile = a_ptr + (top + lane)[:, None] * a_row + lane[None, :] * a_col
    b_tile = b_ptr + lane[:, None] * b_row + (left + lane)[None, :] * b_col
    rows_in = (top + lane)[:, None] < M
    cols_in = (left + lane)[None, :] < N
    acc = tl.zeros((B, B), tl.float32)
    done = 0
    while done < K:
        a = tl.load(a_tile, mask=rows_in & (lane[None, :] < K - done), other=0.0)
        b = tl.load(b_tile, mask=cols_in & (lane[:, None] < K - done), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_tile += B * a_col
        done += B
    c_tile = c_ptr + (top + lane)[:, None] * c_row + (left + lane)[None, :] * c_col
    tl.store(c_tile, acc.to(c_ptr.dtype.element_ty), mask=rows_in & cols_in)


def matmul(a, b, *, out=None):
    M, N = a.shape[0], b.shape[1]
    if out is None:
        out = torch.empty((M, N), device=a.device, dtype=a.dtype)
    mm_kernel[triton.cdiv(M, 64), triton.cdiv(N, 64)](
        a, b, out, M, N, a.shape[1],
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0), out.stride(1), 64,
    )  # fmt: skip
    return out
