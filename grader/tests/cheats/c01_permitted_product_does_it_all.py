"""EXPECT POLICY/FOREIGN_KERNEL from layer_norm_linear: C1 torch.mm, permitted for two gradients, computes the forward product and the gradient of the bias as well"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from rows import load, on, store
from torch.library import triton_op

COLUMNS = 1024


@triton.jit
def add_bias_kernel(product_ptr, bias_ptr, y_ptr, n_outs, BLOCK: tl.constexpr):
    """y = product + bias, both (n_rows, n_outs) and contiguous; program (i, j) has BLOCK columns of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK)
    y = load(product_ptr + row * n_outs, cols, n_outs) + load(bias_ptr, cols, n_outs)
    store(y_ptr + row * n_outs, cols, n_outs, y)


@triton_op("course::add_bias", mutates_args=())
def add_bias_op(product: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """product + bias as an operator."""
    n_rows, n_outs = product.shape
    y = torch.empty((n_rows, n_outs), device=product.device, dtype=product.dtype)
    launch = on(add_bias_kernel, product)[(n_rows, triton.cdiv(n_outs, COLUMNS))]
    launch(product, bias, y, n_outs, BLOCK=COLUMNS)
    return y


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        z = layer_norm_op(x, gamma, beta, eps)
        return add_bias_op(torch.mm(z, weight.t()), bias)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        dweight = torch.mm(dy.t(), layer_norm_op(x, gamma, beta, ctx.eps))
        ones = torch.full((1, dy.shape[0]), 1.0, device=dy.device, dtype=dy.dtype)
        dbias = torch.mm(ones, dy).view(dy.shape[1])
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm and Linear, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
