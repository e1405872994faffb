"""EXPECT POLICY; unscreened POLICY/FOREIGN_KERNEL from layer_norm_linear_forward: C1 torch.mm, which the gradient may call"""

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, gamma_ptr, beta_ptr, z_ptr, n_cols, stride_x, eps, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * stride_x + cols, inside, 0.0).to(tl.float32)
    d = tl.where(inside, x - tl.sum(x, axis=0) / n_cols, 0.0)
    n = d * tl.rsqrt(tl.sum(d * d, axis=0) / n_cols + eps)
    z = n * tl.load(gamma_ptr + cols, inside, 0.0) + tl.load(beta_ptr + cols, inside, 0.0)
    tl.store(z_ptr + row * n_cols + cols, z.to(z_ptr.dtype.element_ty), inside)


@triton.jit
def add_bias_kernel(product_ptr, bias_ptr, out_ptr, n_cols, stride_out, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    y = tl.load(product_ptr + row * n_cols + cols, cols < n_cols) + tl.load(bias_ptr + cols, cols < n_cols)
    tl.store(out_ptr + row * stride_out + cols, y, cols < n_cols)


def layer_norm_linear_forward(x, gamma, beta, weight, bias, *, eps=1e-5, out=None):
    n_rows, n_cols = x.shape
    n_outs = weight.shape[0]
    out = torch.empty((n_rows, n_outs), device=x.device, dtype=x.dtype) if out is None else out
    z = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    block = triton.next_power_of_2(n_cols)
    norm_kernel[(n_rows,)](x, gamma, beta, z, n_cols, x.stride(0), eps, BLOCK=block)
    product = torch.mm(z, weight.t())
    block = triton.next_power_of_2(n_outs)
    add_bias_kernel[(n_rows,)](product, bias, out, n_outs, out.stride(0), BLOCK=block)
    return out
