"""EXPECT WRONG/MISMATCH from layer_norm_linear, hint 11: dweight from x, as it came"""

import torch
from layer_norm_backward import layer_norm_backward
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.save_for_backward(x, gamma, weight)
        ctx.eps = eps
        return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx, dy):
        x, gamma, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dgamma, dbeta = layer_norm_backward(torch.mm(dy, weight), x, gamma, eps=ctx.eps)
        dbias = torch.empty((weight.shape[0],), device=dy.device, dtype=dy.dtype)
        column_sums(dy, dbias)
        return dx, dgamma, dbeta, torch.mm(dy.t(), x), dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps=1e-5):
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
