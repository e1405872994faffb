# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | backward has no dy.contiguous(), as torch.mm takes any strides, but `column_sums_op(dy)` reads dy as a contiguous matrix; must be column_sums_op(dy.contiguous()). Shows in dbias for an expanded, transposed or sliced dy, as from sum(); the other gradients are right.
"""LayerNorm + Linear for autograd: two products of cuBLAS and the norm's own operators."""

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
    """layer_norm_linear_forward, for torch.compile."""
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """column_sums, for torch.compile."""
    sums = terms.new_empty((terms.size(1),))
    column_sums(terms, sums)
    return sums


def linear_gradients(dy, z, weight):
    """Gradients of z @ weight.T + bias for z, weight and bias. torch.mm takes any strides."""
    return torch.mm(dy, weight), torch.mm(dy.T, z), column_sums_op(dy)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """y."""
        ctx.eps = eps
        ctx.save_for_backward(x, gamma, beta, weight)
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """First the Linear layer, then the norm."""
        x, gamma, beta, weight = ctx.saved_tensors
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dz, dweight, dbias = linear_gradients(dy, z, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
