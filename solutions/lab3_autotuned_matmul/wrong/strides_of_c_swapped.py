"""EXPECT WRONG/MISMATCH from matmul_bias_relu, hint 2: S19 the tile is stored transposed"""

import torch
import triton
import triton.language as tl


@triton.jit
def relu(x):
    return tl.where(x > 0, x, 0.0)


@triton.jit
def linear_relu_kernel(
    x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, xm, xk, wk, wn, ym, yn,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(1) * TILE_M + tl.arange(0, TILE_M)
    n = tl.program_id(0) * TILE_N + tl.arange(0, TILE_N)
    y = tl.zeros((TILE_M, TILE_N), tl.float32)
    for k in range(0, K, TILE_K):
        kk = k + tl.arange(0, TILE_K)
        x = tl.load(x_ptr + m[:, None] * xm + kk[None, :] * xk, (m[:, None] < M) & (kk[None, :] < K), 0.0)
        w = tl.load(w_ptr + kk[:, None] * wk + n[None, :] * wn, (kk[:, None] < K) & (n[None, :] < N), 0.0)
        y = tl.dot(x, w, y, input_precision="ieee")
    y += tl.load(bias_ptr + n, n < N, 0.0).to(tl.float32)[None, :]
    where = y_ptr + m[:, None] * yn + n[None, :] * ym
    tl.store(where, relu(y).to(y_ptr.dtype.element_ty), (m[:, None] < M) & (n[None, :] < N))


def matmul_bias_relu(a, b, bias, *, out=None):
    M, K = a.shape
    N = b.shape[1]
    y = torch.empty((M, N), dtype=a.dtype, device=a.device) if out is None else out
    linear_relu_kernel[(triton.cdiv(N, 64), triton.cdiv(M, 32))](
        a, b, bias, y, M, N, K, *a.stride(), *b.stride(), *y.stride(), TILE_M=32, TILE_N=64, TILE_K=32
    )
    return y
