# labs/lab4_production_slice/layer_norm_linear_backward.py | two mistakes | both in LayerNormLinear.forward. First: forward_op(x, gamma, beta, weight, bias, EPS) takes the constant 1e-5 instead of the argument eps; y alone is wrong, where eps is not 1e-5 and matters (eps = 1, or eps = 0 with narrow rows). It should be eps. Second: the normalised row z, saved for the gradient of the weight, is computed by layer_norm_op(x, gamma, torch.zeros_like(beta), eps), without beta; dweight alone is wrong, in every case, and lacks (sum of dy over rows) times beta. It should be layer_norm_op(x, gamma, beta, eps)
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums
from torch.library import triton_op

EPS = 1e-5


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
        y = forward_op(x, gamma, beta, weight, bias, EPS)
        # The gradient of the weight needs the rows that met it.
        z = layer_norm_op(x, gamma, torch.zeros_like(beta), eps)
        ctx.save_for_backward(x, gamma, weight, z)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, weight, z = ctx.saved_tensors
        dy = dy.contiguous()
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
