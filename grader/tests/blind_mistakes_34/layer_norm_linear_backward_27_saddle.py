# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | In LayerNormLinear.backward `dweight` is `torch.mm(z.T, dy).reshape(weight.shape)`: the product is (n_cols, n_outs), and reshape reads its numbers in another order where it should be transposed. It should be `torch.mm(dy.T, z)`. dweight is wrong in every case with more than one column and more than one output; the other five results are right.
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
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # Back through Linear to the result of the norm, and from there through the norm.
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        # z was never stored: the norm computes it again.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(z.T, dy).reshape(weight.shape)
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
