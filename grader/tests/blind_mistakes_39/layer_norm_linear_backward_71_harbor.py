# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | In LayerNormLinear.backward the norm's gradients are taken at the wrong place: backward_op(dz, z, gamma, ctx.eps) gets z, the result of the norm, instead of its input x. Mean, rstd and the normalised row are then those of z, so dx (no longer divided by the deviation of x, and of another row) and dgamma are wrong in every case with more than one column; y, dbeta, dweight and dbias are right. It should be backward_op(dz, x, gamma, ctx.eps).
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
        # y = z @ weight.T + bias, where z was never stored: norm the rows of x once more
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.T, z)
        dbias = column_sums_op(dy)
        # through the product, and then through the norm
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, z, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
