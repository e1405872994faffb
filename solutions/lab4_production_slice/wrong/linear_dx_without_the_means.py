"""EXPECT WRONG/MISMATCH from layer_norm_linear, hint 5: mean and deviation taken as constants"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_forward, mean_and_rstd
from layer_norm_backward import layer_norm_backward
from layer_norm_linear import layer_norm_linear_forward
from rows import block_of, column_sums, load, store


@triton.jit
def dx_kernel(dz_ptr, x_ptr, gamma_ptr, dx_ptr, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    _, rstd = mean_and_rstd(x_ptr + row * stride_x, eps, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dz_ptr + row * N_COLS, cols, N_COLS) * load(gamma_ptr, cols, N_COLS)
        store(dx_ptr + row * N_COLS, cols, N_COLS, rstd * g)


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight = ctx.saved_tensors
        dy, (n_rows, n_cols) = dy.contiguous(), x.shape
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = layer_norm_backward(dz, x, gamma, eps=ctx.eps)
        sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
        dx_kernel[(n_rows,)](dz, x, gamma, dx, x.stride(0), ctx.eps, **sizes)
        dweight = torch.mm(dy.t(), layer_norm_forward(x, gamma, beta, eps=ctx.eps))
        dbias = torch.empty((weight.shape[0],), device=dy.device, dtype=dy.dtype)
        column_sums(dy, dbias)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps=1e-5):
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
