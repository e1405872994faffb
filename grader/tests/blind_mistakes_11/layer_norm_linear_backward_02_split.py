# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | backward uses dy without contiguous(), "torch.mm takes any strides", and hands it to column_sums_op as well; column_sums takes its terms as contiguous, so that call needs dy.contiguous(). Shows in dbias where dy is expanded (from sum()), transposed or has every second column; the other gradients are right.
"""The gradients of LayerNorm + Linear: those of Linear by torch.mm, those of the norm by its operator."""

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
    out = terms.new_empty((terms.size(1),))
    column_sums(terms, out)
    return out


def linear_gradients(dy, z, weight):
    """Gradients of z @ weight.T + bias for z, weight and bias. torch.mm takes any strides."""
    return torch.mm(dy, weight), torch.mm(dy.T, z), column_sums_op(dy)


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight = ctx.saved_tensors
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dz, dweight, dbias = linear_gradients(dy, z, weight)
        dx, dgamma, dbeta = backward_op(dz.contiguous(), x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
