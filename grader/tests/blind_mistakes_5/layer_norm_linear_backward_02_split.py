# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | LayerNormLinear.backward computes z again with the fixed eps 1e-5 instead of ctx.eps, so dweight is wrong for every other eps; the other gradients are right.
"""y = LayerNorm(x) @ W.T + b, differentiable. Each factor of the backward pass has its own small function."""

import torch
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums
from torch.library import triton_op


@triton_op("course::layer_norm_linear", mutates_args=())
def forward_op(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


def of_linear(dy, z, weight):
    """Gradients of z @ weight.T + bias for z, weight and bias."""
    dz = torch.mm(dy, weight)
    dweight = torch.mm(dy.T, z)
    return dz, dweight, column_sums_op(dy)


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        y = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight = ctx.saved_tensors
        z = layer_norm_op(x, gamma, beta, 1e-5)
        dz, dweight, dbias = of_linear(dy.contiguous(), z, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
