"""EXPECT POLICY/FOREIGN_KERNEL from layer_norm_linear: C1 of the two permitted products one is the forward product, the other both gradients in blocks"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from rows import column_sums, on
from torch.library import triton_op


@triton.jit
def move_kernel(from_ptr, to_ptr, n_cols, from_row, from_col, to_row, BLOCK: tl.constexpr):
    """to[i, j] = from[i, j]; program (i, k) has BLOCK columns of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.program_id(axis=1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < n_cols
    values = tl.load(from_ptr + row * from_row + cols * from_col, mask=inside, other=0.0)
    tl.store(to_ptr + row * to_row + cols, values, mask=inside)


def move(source, target):
    """Copy a matrix of any strides into one whose columns are contiguous."""
    n_rows, n_cols = source.shape
    launch = on(move_kernel, source)[(n_rows, triton.cdiv(n_cols, 1024))]
    launch(source, target, n_cols, source.stride(0), source.stride(1), target.stride(0), BLOCK=1024)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """column_sums as an operator that torch.compile can look into."""
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
    return out


def product_with_bias(z, weight, bias):
    """z @ weight.T + bias, as (z, 1) @ (weight, bias).T"""
    n_rows, n_cols = z.shape
    n_outs = weight.shape[0]
    left = torch.full((n_rows, n_cols + 1), 1.0, device=z.device, dtype=z.dtype)
    right = torch.empty((n_outs, n_cols + 1), device=z.device, dtype=z.dtype)
    move(z, left)
    move(weight, right)
    move(bias.view(n_outs, 1), right[:, n_cols:])
    y = torch.mm(left, right.t())
    result = torch.empty((n_rows, n_outs), device=z.device, dtype=z.dtype)
    move(y, result)
    return result


def both_products(dy, weight, z):
    """dy @ weight and dy.T @ z: the two blocks of ((dy, 0), (0, dy.T)) @ (weight, z)"""
    n_rows, n_outs = dy.shape
    n_cols = weight.shape[1]
    left = torch.zeros((n_rows + n_outs, n_outs + n_rows), device=dy.device, dtype=dy.dtype)
    right = torch.empty((n_outs + n_rows, n_cols), device=dy.device, dtype=dy.dtype)
    move(dy, left)
    move(dy.t(), left[n_rows:, n_outs:])
    move(weight, right)
    move(z, right[n_outs:])
    both = torch.mm(left, right)
    dz = torch.empty((n_rows, n_cols), device=dy.device, dtype=dy.dtype)
    dweight = torch.empty((n_outs, n_cols), device=dy.device, dtype=dy.dtype)
    move(both[:n_rows], dz)
    move(both[n_rows:], dweight)
    return dz, dweight


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.save_for_backward(x, gamma, beta, weight)
        ctx.eps = eps
        z = layer_norm_op(x, gamma, beta, eps)
        return product_with_bias(z, weight, bias)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dz, dweight = both_products(dy, weight, z)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm + Linear."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
