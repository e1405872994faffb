"""EXPECT WRONG/MISMATCH from layer_norm_linear_forward, hint 11: the bias is added, and beta is not"""

import torch
import triton
import triton.language as tl
from layer_norm import mean_and_rstd
from rows import block_of, load, store


@triton.jit
def statistics_kernel(x_ptr, mean_ptr, rstd_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    mean, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def scale_kernel(weight_ptr, gamma_ptr, bias_ptr, scaled_ptr, total_ptr, shift_ptr, stride_weight,
                 N_COLS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        weight = load(weight_ptr + row * stride_weight, cols, N_COLS)
        scaled = (load(gamma_ptr, cols, N_COLS) * weight).to(scaled_ptr.dtype.element_ty)
        store(scaled_ptr + row * N_COLS, cols, N_COLS, scaled)
        total += tl.sum(scaled.to(tl.float32), axis=0)
    tl.store(total_ptr + row, total)
    tl.store(shift_ptr + row, tl.load(bias_ptr + row).to(tl.float32))


@triton.jit
def linear_kernel(x_ptr, scaled_ptr, mean_ptr, rstd_ptr, total_ptr, shift_ptr, y_ptr, M, N, K, stride_x,
                  stride_y, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    rows = tl.program_id(axis=1) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None].to(tl.int64)
    cols = tl.program_id(axis=0) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :].to(tl.int64)
    product = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows * stride_x + k, mask=(rows < M) & (k < K), other=0.0)
        scaled_ptrs = scaled_ptr + cols * K + k[:, None]
        scaled = tl.load(scaled_ptrs, mask=(cols < N) & (k[:, None] < K), other=0.0)
        product = tl.dot(x, scaled, product, input_precision="ieee")
    mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
    rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
    total = tl.load(total_ptr + cols, mask=cols < N, other=0.0)
    shift = tl.load(shift_ptr + cols, mask=cols < N, other=0.0)
    y = rstd * (product - mean * total) + shift
    tl.store(y_ptr + rows * stride_y + cols, y.to(y_ptr.dtype.element_ty), mask=(rows < M) & (cols < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps=1e-5, out=None):
    (M, K), N = x.shape, weight.shape[0]
    out = torch.empty((M, N), device=x.device, dtype=x.dtype) if out is None else out
    scaled = torch.empty((N, K), device=x.device, dtype=x.dtype)
    mean, rstd = torch.empty((2, M), device=x.device, dtype=torch.float32)
    total, shift = torch.empty((2, N), device=x.device, dtype=torch.float32)
    sizes = {"N_COLS": K, "BLOCK": block_of(K)}
    statistics_kernel[(M,)](x, mean, rstd, x.stride(0), eps, **sizes)
    scale_kernel[(N,)](weight, gamma, bias, scaled, total, shift, weight.stride(0), **sizes)
    grid = (triton.cdiv(N, 64), triton.cdiv(M, 64))
    arguments = x, scaled, mean, rstd, total, shift, out, M, N, K, x.stride(0), out.stride(0)
    linear_kernel[grid](*arguments, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    return out
