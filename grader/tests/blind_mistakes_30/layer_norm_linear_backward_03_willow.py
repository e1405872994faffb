# labs/lab4_production_slice/layer_norm_linear_backward.py | two mistakes | (1) LayerNormLinear.backward computes z for dweight with a bias of zeros (`flat`) instead of beta, so dweight lacks the outer product of the sums of dy and beta: wrong in every case in which beta is not 0; it should be layer_norm_op(x, gamma, beta, eps). (2) backward takes eps from the constant EPS = 1e-5 instead of the argument, which forward does not keep: dx, dgamma and dweight are wrong where eps has another value that matters, as 1 or, with rows of small variance, 0; it should be ctx.eps.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums
from torch.library import triton_op

EPS = 1e-5  # as in torch.nn.LayerNorm


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
        ctx.save_for_backward(x, gamma, beta, weight)
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # Through Linear, then through the norm.
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, EPS)
        # The rows that met the weight are computed again.
        flat = torch.zeros_like(beta)
        rows = layer_norm_op(x, gamma, flat, EPS)
        dweight = torch.mm(dy.transpose(0, 1), rows)
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
