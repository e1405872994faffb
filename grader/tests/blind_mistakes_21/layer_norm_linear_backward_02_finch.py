# labs/lab4_production_slice/layer_norm_linear_backward.py | two mistakes | (1) through_norm unpacks the operator's results as dx, dbeta, dgamma, so dgamma and dbeta are exchanged in every case. (2) through_linear calls normalised(x, gamma, beta) without ctx.eps, so dweight uses eps = 1e-5 and is wrong for other eps.
"""LayerNorm + Linear: forward by the fused kernels, backward the long way."""

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


def normalised(x, gamma, beta, eps: float = 1e-5):
    """The result of the norm, once more: the forward pass never stored it."""
    return layer_norm_op(x, gamma, beta, eps)


def through_norm(dy, x, gamma, weight, eps):
    """Gradients of what is before the product: for x, gamma and beta."""
    dz = torch.mm(dy, weight)
    dx, dbeta, dgamma = backward_op(dz, x, gamma, eps)
    return dx, dgamma, dbeta


def through_linear(dy, x, gamma, beta):
    """Gradients of the weight and the bias of Linear."""
    z = normalised(x, gamma, beta)
    return torch.mm(dy.T, z), column_sums_op(dy)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

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
        dx, dgamma, dbeta = through_norm(dy, x, gamma, weight, ctx.eps)
        dweight, dbias = through_linear(dy, x, gamma, beta)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
