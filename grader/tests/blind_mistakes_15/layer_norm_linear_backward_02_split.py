# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | gradients_of_linear computes z with zeros in place of beta, so dweight lacks the share of beta; it should be layer_norm_op(x, gamma, beta, eps), as z is n * gamma + beta.
"""LayerNorm + Linear with its gradients."""

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
    out = terms.new_empty((terms.shape[1],))
    column_sums(terms, out)
    return out


def gradients_of_norm(dy, x, gamma, weight, eps):
    """dx, dgamma and dbeta, from the gradient of the result of Linear."""
    return backward_op(torch.mm(dy, weight), x, gamma, eps)


def gradients_of_linear(dy, x, gamma, beta, eps):
    """dweight and dbias; the input of Linear was not kept and is computed again."""
    z = layer_norm_op(x, gamma, torch.zeros_like(beta), eps)
    return torch.mm(dy.t(), z), column_sums_op(dy)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.eps = eps
        ctx.save_for_backward(x, gamma, beta, weight)
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dgamma, dbeta = gradients_of_norm(dy, x, gamma, weight, ctx.eps)
        dweight, dbias = gradients_of_linear(dy, x, gamma, beta, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
