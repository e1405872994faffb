"""EXPECT POLICY/FOREIGN_KERNEL from layer_norm_linear: C1 torch.mm, permitted for gradients, computes the product of the forward pass and adds by vectors of ones"""

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


def stacked(y, shift):
    """y and shift, each as a row of one matrix: torch.zeros and expand give the places, torch.mm the values."""
    n = y.numel()
    first = torch.zeros((2, 1), device=y.device, dtype=y.dtype)
    first[0].fill_(1.0)
    second = torch.zeros((2, 1), device=y.device, dtype=y.dtype)
    second[1].fill_(1.0)
    top = torch.mm(first, y.contiguous().view(1, n))
    bottom = torch.mm(second, shift.contiguous().view(1, n))
    return sum((top, bottom))


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        z = layer_norm_op(x, gamma, beta, eps)
        M, K = z.shape
        y = torch.mm(z, weight.T)
        ones = torch.full((M, 1), 1.0, device=x.device, dtype=x.dtype)
        shift = torch.mm(ones, bias.view(1, bias.numel()))
        pair = torch.mm(torch.full((1, 2), 1.0, device=x.device, dtype=x.dtype), stacked(y, shift))
        return pair.view(y.shape)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.T, z)
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
