# labs/lab4_production_slice/layer_norm_linear_backward.py | right | The parameters' gradients come first, tensors are saved in another order with the weight in front, dz is computed transposed as weight.T @ dy.T and made contiguous, and gradients that are not needed are left out group by group.
"""The differentiable LayerNorm + Linear: y = norm(x) @ weight.T + bias."""

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
        ctx.save_for_backward(weight, x, gamma, beta)
        ctx.norm_eps = eps
        y = forward_op(x, gamma, beta, weight, bias, eps)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        weight, x, gamma, beta = ctx.saved_tensors
        eps = ctx.norm_eps
        need_x, need_gamma, need_beta, need_weight, need_bias, need_eps = ctx.needs_input_grad
        dy = dy.contiguous()

        dbias = column_sums_op(dy) if need_bias else None

        dweight = None
        if need_weight:
            z = layer_norm_op(x, gamma, beta, eps)
            dweight = torch.mm(dy.t(), z)

        dx, dgamma, dbeta = None, None, None
        if need_x or need_gamma or need_beta:
            # (n_cols, n_outs) @ (n_outs, n_rows), then the other way round, with its columns side by side
            dz = torch.mm(weight.t(), dy.t()).t().contiguous()
            dx, dgamma, dbeta = backward_op(dz, x, gamma, eps)

        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
