# labs/lab4_production_slice/layer_norm_linear_backward.py | error | LayerNormLinear.forward passes eps, a float, to ctx.save_for_backward (and backward unpacks it from ctx.saved_tensors), which takes tensors only: torch raises a TypeError as soon as an input requires a gradient. eps should be kept as ctx.eps.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

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
    """layer_norm_linear_forward as an operator that torch.compile can look into."""
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """column_sums as an operator that torch.compile can look into."""
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        y = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.save_for_backward(x, gamma, beta, weight, eps)
        return y

    @staticmethod
    def backward(ctx, grad_y):
        """Return dx, dgamma, dbeta, dweight and dbias for grad_y, and None for eps."""
        x, gamma, beta, weight, eps = ctx.saved_tensors
        grad_y = grad_y.contiguous()
        z = layer_norm_op(x, gamma, beta, eps)
        grad_weight = torch.mm(grad_y.transpose(0, 1), z)
        grad_bias = column_sums_op(grad_y)
        grad_z = torch.mm(grad_y, weight)
        grad_x, grad_gamma, grad_beta = backward_op(grad_z, x, gamma, eps)
        return grad_x, grad_gamma, grad_beta, grad_weight, grad_bias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
