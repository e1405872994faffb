"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import layer_norm as ln
import layer_norm_backward as gradients
import layer_norm_linear as fused
import torch
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
    return fused.layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

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
        dy = dy.contiguous()
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = gradients.backward_op(dz, x, gamma, ctx.eps)
        z = ln.layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = torch.empty((weight.shape[0],), device=dy.device, dtype=dy.dtype)
        column_sums(dy, dbias)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
