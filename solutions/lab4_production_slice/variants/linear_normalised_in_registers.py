"""EXPECT PASS from layer_norm_linear_forward: each tile of x is normalised before its product"""

import torch
import triton
import triton.language as tl


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, n_cols, stride, eps, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride + k + cols, mask=k + cols < n_cols, other=0.0)
        total += x.to(tl.float32)
    mean = tl.sum(total, axis=0) / n_cols
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, n_cols, BLOCK):
        x = tl.load(x_ptr + row * stride + k + cols, mask=k + cols < n_cols, other=0.0)
        d = tl.where(k + cols < n_cols, x.to(tl.float32) - mean, 0.0)
        squares += d * d
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps))


@triton.jit
def linear_kernel(x_ptr, gamma_ptr, beta_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, M, N, K,
        stride_x, stride_weight, stride_out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
        BLOCK_K: tl.constexpr):  # fmt: skip
    row = tl.program_id(axis=0) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)[:, None]
    col = tl.program_id(axis=1) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)[None, :]
    mean = tl.load(mean_ptr + row, mask=row < M, other=0.0)
    rstd = tl.load(rstd_ptr + row, mask=row < M, other=0.0)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + row * stride_x + k[None, :], mask=(row < M) & (k[None, :] < K), other=0.0)
        gamma = tl.load(gamma_ptr + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
        beta = tl.load(beta_ptr + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
        # Past the end of a row gamma and beta are 0, and so is this.
        z = (x.to(tl.float32) - mean) * rstd * gamma + beta
        w = tl.load(
            weight_ptr + col * stride_weight + k[:, None], mask=(col < N) & (k[:, None] < K), other=0.0
        )
        acc = tl.dot(z.to(w.dtype), w, acc, input_precision="ieee")
    y = acc + tl.load(bias_ptr + col, mask=col < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * stride_out + col, y.to(out_ptr.dtype.element_ty), mask=(row < M) & (col < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None) -> torch.Tensor:
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), dtype=x.dtype, device=x.device) if out is None else out
    mean, rstd = (torch.empty((M,), dtype=torch.float32, device=x.device) for _ in range(2))
    statistics_kernel[(M,)](x, mean, rstd, K, x.stride(0), eps, BLOCK=min(4096, triton.next_power_of_2(K)))
    arguments = x, gamma, beta, weight, bias, out, mean, rstd, M, N, K
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    strides = x.stride(0), weight.stride(0), out.stride(0)
    linear_kernel[grid](*arguments, *strides, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    return out
