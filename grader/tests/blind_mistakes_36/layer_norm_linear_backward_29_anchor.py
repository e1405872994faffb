# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | LayerNormLinear.backward computes the gradient for the norm from the scaled weight, `torch.mm(dy, scaled)` with scaled = gamma * weight, and hands it to backward_op together with gamma, which multiplies by gamma again: dx has gamma squared inside, dgamma and dbeta have a factor gamma too many (all wrong unless gamma is 1). y, dweight and dbias are right. Should be dz = torch.mm(dy, weight).
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, load, on, store
from torch.library import triton_op

WIDTH = 1024


@triton.jit
def scaled_weight_kernel(weight_ptr, gamma_ptr, scaled_ptr, stride_weight, n_cols, BLOCK: tl.constexpr):
    """Row j of scaled is gamma * weight[j]; program (j, i) has BLOCK columns of it."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    weight = load(weight_ptr + row * stride_weight, cols, n_cols)
    gamma = load(gamma_ptr, cols, n_cols)
    store(scaled_ptr + row * n_cols, cols, n_cols, weight * gamma)


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


@triton_op("course::scaled_weight", mutates_args=())
def scaled_weight_op(weight: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """gamma * weight as an operator."""
    n_outs, n_cols = weight.shape
    scaled = torch.empty((n_outs, n_cols), device=weight.device, dtype=weight.dtype)
    on(scaled_weight_kernel, weight)[(n_outs, triton.cdiv(n_cols, WIDTH))](
        weight, gamma, scaled, weight.stride(0), n_cols, BLOCK=WIDTH
    )
    return scaled


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
        scaled = scaled_weight_op(weight, gamma)
        dz = torch.mm(dy, scaled)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.T, z)
        return dx, dgamma, dbeta, dweight, column_sums_op(dy), None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
