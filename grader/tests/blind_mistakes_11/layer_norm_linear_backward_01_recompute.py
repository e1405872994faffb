# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | dweight is dy.T @ n, where n is layer_norm_op with a weight of ones and a bias of zeros (`plain`), as dgamma has n; the input of Linear is z = n * gamma + beta, so it must be dy.T @ z with gamma and beta. Shows in dweight wherever gamma is not 1 or beta is not 0.
"""LayerNorm + Linear for autograd."""

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
    """The forward pass as an operator."""
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """column_sums as an operator."""
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


def plain(x, eps):
    """The normalised rows of x."""
    n_cols = x.shape[1]
    return layer_norm_op(x, x.new_full((n_cols,), 1.0), x.new_zeros((n_cols,)), eps)


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
        """Return the five gradients, and None for eps."""
        x, gamma, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # The normalised rows are cheaper to make again than to keep.
        n = plain(x, ctx.eps)
        dweight = torch.mm(dy.t(), n)
        dbias = column_sums_op(dy)
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm + Linear."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
