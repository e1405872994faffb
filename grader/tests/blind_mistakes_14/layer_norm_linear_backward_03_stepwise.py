# labs/lab4_production_slice/layer_norm_linear_backward.py | two mistakes | In LayerNormLinear.backward, `dx, dbeta, dgamma = norm_gradients` takes the results of backward_op in the wrong order, so gamma and beta get each other's gradients; it should be `dx, dgamma, dbeta`. And `dbias = column_sums(dy, ...)` keeps the result of a function that returns None, so the bias gets no gradient; it should be `column_sums_op(dy)`, or the tensor that column_sums wrote to.
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
        n_outs = dy.shape[1]

        # 1. the Linear layer, seen from its input
        dz = torch.mm(dy, weight)

        # 2. the norm
        norm_gradients = backward_op(dz, x, gamma, ctx.eps)
        dx, dbeta, dgamma = norm_gradients

        # 3. the Linear layer, seen from its parameters
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums(dy, torch.empty((n_outs,), device=dy.device, dtype=dy.dtype))

        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
