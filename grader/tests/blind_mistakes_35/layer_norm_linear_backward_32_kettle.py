# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | LayerNormLinear.backward computes all gradients of the norm only where x needs one, `if ctx.needs_input_grad[0]`: where x needs none, as in the first layer of a model, dgamma and dbeta stay None, although gamma or beta asked for them. All other combinations are right. The condition should be any(ctx.needs_input_grad[:3]).
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
    """The operator with its gradients; a product that nobody asks for is not computed."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        y = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if ctx.needs_input_grad[0]:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        if ctx.needs_input_grad[3]:
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.t(), z)
        if ctx.needs_input_grad[4]:
            dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
