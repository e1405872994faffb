# labs/lab4_production_slice/layer_norm_linear_backward.py | right | unusual: gradients that autograd does not ask for (ctx.needs_input_grad) are not computed and None is returned for them; the work is in two functions of its own
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


def norm_gradients(dy, x, gamma, weight, eps):
    """Gradients for x, gamma and beta: back through the product, then through the norm."""
    dz = torch.mm(dy, weight)
    return backward_op(dz, x, gamma, eps)


def weight_gradient(dy, x, gamma, beta, eps):
    """The gradient for the weight; z was never stored, so it is computed here."""
    z = layer_norm_op(x, gamma, beta, eps)
    return torch.mm(dy.t(), z)


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

        A frozen layer costs nothing: what nobody asks for stays None.
        """
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        needs = ctx.needs_input_grad

        dx, dgamma, dbeta = None, None, None
        if needs[0] or needs[1] or needs[2]:
            dx, dgamma, dbeta = norm_gradients(dy, x, gamma, weight, ctx.eps)

        dweight = weight_gradient(dy, x, gamma, beta, ctx.eps) if needs[3] else None
        dbias = column_sums_op(dy) if needs[4] else None
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
