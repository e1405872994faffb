# labs/lab4_production_slice/layer_norm_linear_backward.py | error | In bias_gradient_kernel the tile is (OUTS, ROWS), with the outputs along axis 0, but the sum is `tl.sum(total, axis=0)`, which gives ROWS = 32 numbers for the OUTS = 64 pointers of the store: Triton refuses to compile it (shapes 32 and 64 do not fit) at every call of backward. It should be `axis=1`. The forward result is right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on, store
from torch.library import triton_op


@triton.jit
def bias_gradient_kernel(dy_ptr, dbias_ptr, n_rows, n_outs, OUTS: tl.constexpr, ROWS: tl.constexpr):
    """dbias[j] = sum over i of dy[i, j], for OUTS outputs, ROWS rows at a time; dy is contiguous."""
    outs = tl.program_id(axis=0) * OUTS + tl.arange(0, OUTS)
    total = tl.zeros((OUTS, ROWS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (outs < n_outs)[:, None] & (rows < n_rows)[None, :]
        at = outs[:, None] + rows.to(tl.int64)[None, :] * n_outs
        total += tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    store(dbias_ptr, outs, n_outs, tl.sum(total, axis=0))


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
    """The sums of the columns as an operator that torch.compile can look into."""
    n_rows, n_outs = terms.shape
    out = terms.new_empty((n_outs,))
    on(bias_gradient_kernel, terms)[(triton.cdiv(n_outs, 64),)](terms, out, n_rows, n_outs, OUTS=64, ROWS=32)
    return out


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        """Return y for x."""
        ctx.eps = eps
        ctx.save_for_backward(x, gamma, beta, weight)
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps."""
        x, gamma, beta, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dgamma, dbeta = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        dweight = torch.mm(dy.t(), layer_norm_op(x, gamma, beta, ctx.eps))
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
