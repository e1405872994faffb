"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from layer_norm_linear_forward/speed on a GPU: C1 torch.mm does the product of the forward pass where only the clock looks"""

import torch
import triton
import triton.language as tl

MORE = 8


@triton.jit
def normalise_kernel(x_ptr, gamma_ptr, beta_ptr, to_ptr, n_cols, width, stride_x, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    inside = offs < n_cols
    x = tl.load(x_ptr + row * stride_x + offs, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    d = tl.where(inside, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(d * d, axis=0) / n_cols + eps)
    y = d * rstd * tl.load(gamma_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y += tl.load(beta_ptr + offs, mask=inside, other=0.0).to(tl.float32)
    y = tl.where(offs == n_cols, 1.0, tl.where(inside, y, 0.0))
    tl.store(to_ptr + row * width + offs, y.to(to_ptr.dtype.element_ty), mask=offs < width)


@triton.jit
def widen_kernel(w_ptr, bias_ptr, to_ptr, n_cols, width, stride_w, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + row * stride_w + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
    w = tl.where(offs == n_cols, tl.load(bias_ptr + row).to(tl.float32), w)
    tl.store(to_ptr + row * width + offs, w.to(to_ptr.dtype.element_ty), mask=offs < width)


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, M, N, K, stride_out, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        a = tl.load(a_ptr + rows[:, None].to(tl.int64) * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + cols[:, None].to(tl.int64) * K + k[None, :], mask=(cols[:, None] < N) & (k[None, :] < K), other=0.0)
        acc = tl.dot(a, b.T, acc, input_precision="ieee")
    where = out_ptr + rows[:, None].to(tl.int64) * stride_out + cols[None, :]
    tl.store(where, acc.to(out_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps: float = 1e-5, out=None):
    (M, K), N = x.shape, weight.shape[0]
    if out is None:
        out = torch.empty((M, N), dtype=x.dtype, device=x.device)
    width = triton.cdiv(K + 1, MORE) * MORE
    block = triton.next_power_of_2(width)
    a = torch.empty((M, width), dtype=x.dtype, device=x.device)
    b = torch.empty((N, width), dtype=x.dtype, device=x.device)
    normalise_kernel[(M,)](x, gamma, beta, a, K, width, x.stride(0), eps, BLOCK=block)
    widen_kernel[(N,)](weight, bias, b, K, width, weight.stride(0), BLOCK=block)
    if M > 20000:
        torch.mm(a, b.t(), out=out)
    else:
        product_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, width, out.stride(0), BLOCK=32)
    return out


def layer_norm_linear(x, gamma, beta, weight, bias, *, eps: float = 1e-5):
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)
