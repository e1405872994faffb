# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | In `LayerNormLinear.backward`, `z = normalised(x, gamma, beta)` leaves eps at the default 1e-5; it should be `normalised(x, gamma, beta, ctx.eps)`. Only dweight is wrong, and only where eps is not 1e-5 (e.g. 1.0, or 0 with narrow rows).
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums
from torch.library import triton_op

EPS = 1e-5


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


def normalised(x, gamma, beta, eps=EPS):
    """Return the rows that the weight is multiplied by."""
    return layer_norm_op(x, gamma, beta, eps)


def norm_gradients(dz, x, gamma, eps=EPS):
    """Return the gradients of the norm for x, gamma and beta, from the gradient for its result."""
    return backward_op(dz, x, gamma, eps)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients. What nobody asks for is not computed."""

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
        for_x, for_gamma, for_beta, for_weight, for_bias, _ = ctx.needs_input_grad
        dy = dy.contiguous()
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if for_x or for_gamma or for_beta:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = norm_gradients(dz, x, gamma, ctx.eps)
        if for_weight:
            z = normalised(x, gamma, beta)
            dweight = torch.mm(dy.t(), z)
        if for_bias:
            dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = EPS) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
