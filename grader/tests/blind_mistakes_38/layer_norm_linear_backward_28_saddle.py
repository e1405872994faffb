# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | LayerNormLinear.backward, `column_sums_op(dy)`: dy is handed on as autograd gave it, without dy.contiguous(), but column_sums reads its terms as contiguous rows of n_cols; so dbias adds up the wrong elements (or reads past the one element of an expanded dy) wherever dy is transposed, expanded or every second column of a wider matrix; dx, dgamma, dbeta and dweight are right, as torch.mm takes any strides, and so is dbias for a contiguous dy. It should be column_sums_op(dy.contiguous()).
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


def gradients_of_linear(dy, z, weight):
    """Gradients of z @ weight.T + bias for z, weight and bias, from dy."""
    return torch.mm(dy, weight), torch.mm(dy.mT, z), column_sums_op(dy)


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
        # The normalised rows are computed again: to keep them would be one more matrix in memory.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dz, dweight, dbias = gradients_of_linear(dy, z, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
