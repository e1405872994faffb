# labs/lab4_production_slice/layer_norm_linear_backward.py | right | only the gradients that somebody needs are computed (ctx.needs_input_grad), and dbias comes from a kernel of this file that takes both strides of dy
"""LayerNorm + Linear with gradients on demand."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on
from torch.library import triton_op


@triton.jit
def bias_gradient_kernel(dy_ptr, out_ptr, n_rows, n_outs, stride_row, stride_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum over i of dy[i, j], in fp32 and always in this order."""
    j = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    j_ok = j < n_outs
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(0, n_rows, ROWS):
        i = (first + tl.arange(0, ROWS)).to(tl.int64)
        at = i[:, None] * stride_row + j.to(tl.int64)[None, :] * stride_col
        acc += tl.load(dy_ptr + at, mask=(i < n_rows)[:, None] & j_ok[None, :], other=0.0).to(tl.float32)
    tl.store(out_ptr + j, tl.sum(acc, axis=0).to(out_ptr.dtype.element_ty), mask=j_ok)


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


@triton_op("course::bias_gradient", mutates_args=())
def bias_gradient_op(dy: torch.Tensor) -> torch.Tensor:
    """The sums of the columns of dy, of any layout."""
    n_rows, n_outs = dy.shape
    out = torch.empty((n_outs,), device=dy.device, dtype=dy.dtype)
    on(bias_gradient_kernel, dy)[(triton.cdiv(n_outs, 64),)](
        dy, out, n_rows, n_outs, dy.stride(0), dy.stride(1), ROWS=32, COLS=64
    )
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
        """Return a gradient for each argument that needs one, and None for the others and for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        need_x, need_gamma, need_beta, need_weight, need_bias, _ = ctx.needs_input_grad
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if need_bias:
            dbias = bias_gradient_op(dy)
        if need_weight:
            dweight = torch.mm(dy.t(), layer_norm_op(x, gamma, beta, ctx.eps))
        if need_x or need_gamma or need_beta:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
