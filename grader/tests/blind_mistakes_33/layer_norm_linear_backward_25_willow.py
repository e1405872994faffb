# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | LayerNormLinear.backward hands the result z of the norm instead of its input x to the norm's gradient: `norm_gradients(dz, z, gamma, ctx.eps)` should be norm_gradients(dz, x, gamma, ctx.eps); dx and dgamma are wrong in every case, y, dbeta, dweight and dbias are right
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


def linear_gradients(dy, z, weight):
    """Return the gradients of z @ weight.T + bias for z, weight and bias."""
    return torch.mm(dy, weight), torch.mm(dy.T, z), column_sums_op(dy)


def norm_gradients(dz, rows, gamma, eps):
    """Return the gradients of LayerNorm for its rows, gamma and beta."""
    return backward_op(dz, rows, gamma, eps)


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
        # The forward pass never made z: it is cheaper to compute it here than to keep it.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dz, dweight, dbias = linear_gradients(dy.contiguous(), z, weight)
        dx, dgamma, dbeta = norm_gradients(dz, z, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
