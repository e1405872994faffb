# labs/lab4_production_slice/layer_norm_linear_backward.py | right | unusual: the sums of the columns come from a kernel of its own instead of rows.column_sums; dweight is the transposed view of z.T @ dy, so its memory is not contiguous (autograd takes that)
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on
from torch.library import triton_op


@triton.jit
def bias_gradient_kernel(
    dy_ptr, dbias_ptr, n_rows, n_cols, stride_row, stride_col, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """dbias[j] = sum over i of dy[i, j]; a program has COLS columns and adds ROWS rows at a time."""
    cols = tl.program_id(axis=0).to(tl.int64) * COLS + tl.arange(0, COLS)
    # the tile is transposed: one row of it for each column of dy
    col_ptr = dy_ptr + cols[:, None] * stride_col
    total = tl.zeros((COLS,), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (cols[:, None] < n_cols) & (rows[None, :] < n_rows)
        part = tl.load(col_ptr + rows[None, :] * stride_row, mask=inside, other=0.0)
        total += tl.sum(part.to(tl.float32), axis=1)
    tl.store(dbias_ptr + cols, total.to(dbias_ptr.dtype.element_ty), mask=cols < n_cols)


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
    """The sums of the columns of terms, any strides, as an operator that torch.compile can look into."""
    n_rows, n_cols = terms.shape
    out = torch.empty((n_cols,), device=terms.device, dtype=terms.dtype)
    on(bias_gradient_kernel, terms)[(triton.cdiv(n_cols, 32),)](
        terms, out, n_rows, n_cols, terms.stride(0), terms.stride(1), ROWS=64, COLS=32
    )
    return out


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        y = forward_op(x, gamma, beta, weight, bias, eps)
        ctx.eps = eps
        ctx.save_for_backward(x, gamma, beta, weight)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        # (dy.T @ z).T is z.T @ dy
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(z.t(), dy).t()
        dbias = column_sums_op(dy)
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
