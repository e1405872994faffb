# labs/lab4_production_slice/layer_norm_linear_backward.py | error | In backward `dweight = torch.mm(z.t(), dy)` has the shape (n_cols, n_out), so autograd refuses the gradient of the weight (n_out, n_cols) where the two sizes differ; it should have been `torch.mm(dy.t(), z)`.
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
        # BEGIN TODO 1: the result, and what the gradients need (about 3 lines)
        result = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.save_for_backward(x, gamma, beta, weight)  # z is cheap to compute again, so it is not kept
        ctx.eps = eps
        return result
        # END TODO 1

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # BEGIN TODO 2: `dz` for the norm's result, by torch.mm; `dx`, `dgamma`, `dbeta` (about 2 lines)
        # (n_rows, n_out) @ (n_out, n_cols) -> (n_rows, n_cols)
        dz = torch.mm(dy, weight)
        gradients = backward_op(dz, x, gamma, ctx.eps)
        dx, dgamma, dbeta = gradients
        # END TODO 2
        # BEGIN TODO 3: `dweight` by torch.mm, and `dbias` by column_sums_op (about 3 lines)
        # The usual backward pass of a dense layer: the transposed input times the gradient.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(z.t(), dy)
        dbias = column_sums_op(dy)
        # END TODO 3
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
