# labs/lab4_production_slice/layer_norm_linear_backward.py | error | bias_gradient_kernel, `tl.sum(..., axis=0, keep_dims=True)`: the sum has shape (1, COLS) and is added to `total` of shape (COLS,), which so changes its shape in the loop; Triton does not compile that (in the interpreter the store of (1, COLS) to pointers of (COLS,) fails), in every case of layer_norm_linear that runs backward with a gradient for bias. It should be tl.sum(..., axis=0) without keep_dims.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on, store
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
    """layer_norm_linear_forward as an operator that torch.compile can look into."""
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton.jit
def bias_gradient_kernel(dy_ptr, out_ptr, n_rows, n_outs, ROWS: tl.constexpr, COLS: tl.constexpr):
    """out[j] = sum of dy[i, j] over all rows i; a program has COLS outputs and goes down ROWS rows a step."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((COLS,), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < n_rows)[:, None] & (cols < n_outs)[None, :]
        places = rows.to(tl.int64)[:, None] * n_outs + cols[None, :]
        dy = tl.load(dy_ptr + places, mask=inside, other=0.0)
        total += tl.sum(dy.to(tl.float32), axis=0, keep_dims=True)
    store(out_ptr, cols, n_outs, total)


@triton_op("course::bias_gradient", mutates_args=())
def bias_gradient_op(dy: torch.Tensor) -> torch.Tensor:
    """The sums of the columns of a contiguous dy, of its dtype."""
    n_rows, n_outs = dy.shape
    out = dy.new_empty((n_outs,))
    on(bias_gradient_kernel, dy)[(triton.cdiv(n_outs, 32),)](dy, out, n_rows, n_outs, ROWS=64, COLS=32)
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
        _, _, _, wants_weight, wants_bias, _ = ctx.needs_input_grad

        # Through Linear to z, and from z through the norm.
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)

        dweight = dbias = None
        if wants_weight:
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.t(), z)
        if wants_bias:
            dbias = bias_gradient_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
