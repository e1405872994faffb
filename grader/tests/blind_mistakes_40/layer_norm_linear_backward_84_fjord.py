# labs/lab4_production_slice/layer_norm_linear_backward.py | error | Exercise layer_norm_linear: in `LayerNormLinear.backward` `if needs_x: dz = torch.mm(dy, weight)` computes dz only if x needs a gradient, but `if needs_x or needs_gamma or needs_beta:` uses it in `backward_op(dz, ...)`: UnboundLocalError where gamma or beta needs a gradient and x does not (first layer of a model; gradients asked for one at a time). The first condition should be the same as the second. All other combinations are right.
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
    """The operator with its gradients. Only those are computed that are asked for."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        needs_x, needs_gamma, needs_beta, needs_weight, needs_bias, needs_eps = ctx.needs_input_grad
        dy = dy.contiguous()
        dx, dgamma, dbeta = None, None, None
        dweight, dbias = None, None

        # Through the product to the row that the norm gave, and on through the norm.
        if needs_x:
            dz = torch.mm(dy, weight)
        if needs_x or needs_gamma or needs_beta:
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)

        # What met the weight is computed once more, and not kept from the forward pass.
        if needs_weight:
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.T, z)
        if needs_bias:
            dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
