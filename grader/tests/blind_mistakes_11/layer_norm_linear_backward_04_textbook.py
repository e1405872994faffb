# labs/lab4_production_slice/layer_norm_linear_backward.py | error | the two products of the backward pass are written as `dy @ weight` and `dy.T @ z`; an operator on tensors outside a kernel is not permitted (POLICY): it must be torch.mm, which this file may use. Shows in every call, as the file is checked before it runs.
"""The gradients of LayerNorm and Linear."""

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
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # y = z @ weight.T + bias
        dz = dy @ weight
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = dy.T @ z
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
