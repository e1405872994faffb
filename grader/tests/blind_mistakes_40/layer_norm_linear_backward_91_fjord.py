# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | Exercise layer_norm_linear: `(product + total * beta) * gamma` in `linear_gradient_kernel` should be `product * gamma + total * beta`, as dweight = (dy.T @ n) * gamma + dbias * beta. dweight is wrong in nearly all cases (wherever beta is not 0 and gamma is not 1); the other results are right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, load, on, store
from torch.library import triton_op

BLOCK = 1024  # columns of a program of linear_gradient_kernel


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


@triton.jit
def linear_gradient_kernel(
    product_ptr,
    sums_ptr,
    gamma_ptr,
    beta_ptr,
    dweight_ptr,
    dbias_ptr,
    n_cols,
    WIDTH: tl.constexpr,
):
    """Row j of dweight and element j of dbias, by programs (j, 0), (j, 1) and so on.

    product is dy.T @ n for the normalised rows n, which lack gamma and beta, and sums the fp32 sums of dy over
    the rows. Both matrices are (n_outs, n_cols) and contiguous.
    """
    out = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    cols = part * WIDTH + tl.arange(0, WIDTH)
    product = load(product_ptr + out * n_cols, cols, n_cols)
    gamma = load(gamma_ptr, cols, n_cols)
    beta = load(beta_ptr, cols, n_cols)
    total = tl.load(sums_ptr + out)
    store(dweight_ptr + out * n_cols, cols, n_cols, (product + total * beta) * gamma)
    tl.store(dbias_ptr + out, total.to(dbias_ptr.dtype.element_ty), mask=part == 0)


@triton_op("course::linear_gradient", mutates_args=())
def linear_gradient_op(
    dy: torch.Tensor, product: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients for weight and bias, from dy and dy.T @ n."""
    n_outs, n_cols = product.shape
    sums = torch.empty((n_outs,), device=dy.device, dtype=torch.float32)
    column_sums(dy, sums)
    dweight = torch.empty((n_outs, n_cols), device=dy.device, dtype=dy.dtype)
    dbias = torch.empty((n_outs,), device=dy.device, dtype=dy.dtype)
    launch = on(linear_gradient_kernel, dy)[(n_outs, triton.cdiv(n_cols, BLOCK))]
    launch(product, sums, gamma, beta, dweight, dbias, n_cols, WIDTH=BLOCK)
    return dweight, dbias


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
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)

        # n alone: a norm whose weight is 1 and whose bias is 0.
        ones = torch.full(gamma.shape, 1.0, device=x.device, dtype=x.dtype)
        n = layer_norm_op(x, ones, torch.zeros_like(beta), ctx.eps)
        dweight, dbias = linear_gradient_op(dy, torch.mm(dy.T, n), gamma, beta)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
