# labs/lab4_production_slice/layer_norm_linear_backward.py | error | `dbias = dy.sum(dim=0)` in `LayerNormLinear.backward` computes on a tensor outside a kernel: the rules refuse it (POLICY), it must be column_sums of dy into a new vector. The numbers would be right
"""LayerNorm + Linear with all five gradients."""

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
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


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
        # Linear
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = dy.sum(dim=0)
        dz = torch.mm(dy, weight)
        # LayerNorm
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
