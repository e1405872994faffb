# labs/lab4_production_slice/layer_norm_linear_backward.py | error | In `LayerNormLinear.backward`, `dy.new_ones((1, dy.shape[0]))` is not in the language of a lab file (of a tensor only `new_empty`, `new_full`, `new_zeros`, ... are permitted): POLICY in all cases. `dy.new_full((1, n), 1.0)` or `column_sums` would do.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
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


def gradients_of_norm(dz, x, gamma, eps):
    """dx, dgamma and dbeta: Linear hands on dz in the place of dy."""
    return backward_op(dz, x, gamma, eps)


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
        needed = ctx.needs_input_grad
        dy = dy.contiguous()
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if needed[0] or needed[1] or needed[2]:
            dx, dgamma, dbeta = gradients_of_norm(torch.mm(dy, weight), x, gamma, ctx.eps)
        if needed[3]:
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.t(), z)
        if needed[4]:
            # The sum of each column is a product with a row of ones.
            row = dy.new_ones((1, dy.shape[0]))
            dbias = torch.mm(row, dy).view(-1)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
