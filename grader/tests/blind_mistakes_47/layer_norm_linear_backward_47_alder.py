# labs/lab4_production_slice/layer_norm_linear_backward.py | error | `dz = dy.mm(weight)` in `gradients_of_norm` and `return dy.t().mm(z)` in `gradient_of_weight` (`layer_norm_linear`) use the method `mm` of a tensor, which is not in the list of what host code may use (POLICY): only the function `torch.mm` is permitted, so `torch.mm(dy, weight)` and `torch.mm(dy.t(), z)`. Shows in all cases, as the file is refused; the values would be right.
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


def gradients_of_norm(dy, x, gamma, weight, eps):
    """Return the gradients of x, gamma and beta: back through Linear, then through the norm."""
    dz = dy.mm(weight)
    return backward_op(dz, x, gamma, eps)


def gradient_of_weight(dy, x, gamma, beta, eps):
    """Return the gradient of the weight; what met it in the forward pass is computed again."""
    z = layer_norm_op(x, gamma, beta, eps)
    return dy.t().mm(z)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps.

        What nobody asks for is not computed, and None stands in its place.
        """
        x, gamma, beta, weight = ctx.saved_tensors
        of_x, of_gamma, of_beta, of_weight, of_bias, _ = ctx.needs_input_grad
        dy = dy.contiguous()
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if of_x or of_gamma or of_beta:
            dx, dgamma, dbeta = gradients_of_norm(dy, x, gamma, weight, ctx.eps)
        if of_weight:
            dweight = gradient_of_weight(dy, x, gamma, beta, ctx.eps)
        if of_bias:
            dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
