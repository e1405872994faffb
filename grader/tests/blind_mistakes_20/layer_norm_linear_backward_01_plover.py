# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | In LayerNormLinear.backward, dz is computed with gamma * weight (folded_op), but backward_op multiplies by gamma once more: dx has gamma twice, and dgamma and dbeta are too large by the factor gamma. dz should be torch.mm(dy, weight). Right only where gamma is 1; y, dweight and dbias are right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op


@triton.jit
def fold_kernel(weight_ptr, gamma_ptr, folded_ptr, stride_weight, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Row j of folded, which is contiguous, is gamma * weight[j]; program j has row j."""
    row = tl.program_id(axis=0).to(tl.int64)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = load(weight_ptr + row * stride_weight, cols, N_COLS)
        store(folded_ptr + row * N_COLS, cols, N_COLS, w * load(gamma_ptr, cols, N_COLS))


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


@triton_op("course::folded_weight", mutates_args=())
def folded_op(weight: torch.Tensor, gamma: torch.Tensor) -> torch.Tensor:
    """The matrix that the forward pass multiplies x with: gamma * weight, row by row."""
    n_outs, n_cols = weight.shape
    folded = torch.empty((n_outs, n_cols), device=weight.device, dtype=weight.dtype)
    on(fold_kernel, weight)[(n_outs,)](
        weight, gamma, folded, weight.stride(0), N_COLS=n_cols, BLOCK=min(block_of(n_cols), 4096)
    )
    return folded


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
        # y = n @ (gamma * weight).T + ..., so the gradient goes back through the folded matrix.
        dz = torch.mm(dy, folded_op(weight, gamma))
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        # The gradient of the weight needs the norm's result, which was never stored.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
