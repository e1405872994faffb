# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | LayerNormLinear.backward computes the row that met the weight without beta: layer_norm_op(x, gamma, torch.zeros_like(gamma), ctx.eps) gives n * gamma, so dweight = dy.T @ (n * gamma) lacks the sum of dy over the rows times beta. dweight is wrong in every case with a beta that is not 0; y and the other gradients are right. beta should be saved and be handed to layer_norm_op.
"""LayerNorm and Linear as one differentiable operator."""

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
        ctx.save_for_backward(x, gamma, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # Linear: its input is the result of the norm, computed once more.
        z = layer_norm_op(x, gamma, torch.zeros_like(gamma), ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums_op(dy)
        # The norm: what Linear hands back is its incoming gradient.
        dx, dgamma, dbeta = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
