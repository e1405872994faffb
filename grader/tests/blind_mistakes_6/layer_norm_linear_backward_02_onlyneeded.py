# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | z is computed again with eps = 1e-5 in place of ctx.eps, so dweight is wrong for any other eps, for example 1.0 (or 0 with a small variance).
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


def linear_gradients(dy, z):
    """Gradients of a Linear layer for its weight and its bias, from dy and its input z."""
    return torch.mm(dy.t(), z), column_sums_op(dy)


class LayerNormLinear(torch.autograd.Function):
    """forward_op; its gradients only where somebody asks for them."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.eps = float(eps)
        ctx.save_for_backward(x, gamma, beta, weight)
        y = forward_op(x, gamma, beta, weight, bias, ctx.eps)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        # x, gamma and beta are in front of the product
        if any(ctx.needs_input_grad[:3]):
            dx, dgamma, dbeta = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        # weight and bias are behind the norm: the norm once more, it was never stored
        if ctx.needs_input_grad[3] or ctx.needs_input_grad[4]:
            dweight, dbias = linear_gradients(dy, layer_norm_op(x, gamma, beta, 1e-5))
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """LayerNorm, then Linear."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
