# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | LayerNormLinear.backward no longer makes dy contiguous, and bias_gradient_kernel (called by column_sums_op) has a stride for rows only, so dbias is wrong, partly from out of bounds, where the columns of dy are apart or expanded (sum(), transposed, every second column); dy.contiguous() or a stride for columns is needed. The other gradients are right for all layouts.
"""LayerNorm and Linear, differentiable.

torch.mm takes matrices of any strides, so dy is used as it comes, without a copy. The sums for dbias have a kernel of
their own for the same reason: it goes from row to row by the stride of dy.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on, store
from torch.library import triton_op


@triton.jit
def bias_gradient_kernel(dy_ptr, out_ptr, n_rows, n_outs, stride_dy, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of dy[i, j], in fp32; a program has COLS columns and all rows."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)
        where = rows.to(tl.int64)[:, None] * stride_dy + cols[None, :]
        inside = (rows < n_rows)[:, None] & (cols < n_outs)[None, :]
        tile += tl.load(dy_ptr + where, mask=inside, other=0.0).to(tl.float32)
    store(out_ptr, cols, n_outs, tl.sum(tile, axis=0))


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
    """Sums of the columns of terms, as an operator that torch.compile can look into."""
    n_rows, n_outs = terms.shape
    out = torch.empty((n_outs,), device=terms.device, dtype=terms.dtype)
    launch = on(bias_gradient_kernel, terms)[(triton.cdiv(n_outs, 32),)]
    launch(terms, out, n_rows, n_outs, terms.stride(0), ROWS=64, COLS=32)
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
        # the gradients of Linear: z is computed again, which is cheaper than to keep it
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums_op(dy)
        # and those of the norm
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
