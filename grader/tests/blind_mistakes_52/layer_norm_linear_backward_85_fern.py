# labs/lab4_production_slice/layer_norm_linear_backward.py | right | Unusual: instead of the given `column_sums_op` it has its own kernel and operator for dbias, in two stages (fp32 sums of up to 64 parts of the rows, then `column_sums` of these); dweight and dbias come before dz, and z is a temporary of one expression.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, on, store
from torch.library import triton_op

HEIGHT, WIDTH = tl.constexpr(32), tl.constexpr(64)  # the tile of dy that a program adds at a time
PARTS = 64  # of the rows at most


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
def partial_sums_kernel(dy_ptr, partial_ptr, n_rows, n_outs):
    """Row k of partial has the sums of part k of the rows of dy, in fp32; program (i, k) adds WIDTH columns.

    Part k has every num_programs(1)-th tile of HEIGHT rows, from tile k on. dy is (n_rows, n_outs), contiguous.
    """
    part = tl.program_id(axis=1)
    parts = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    added = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for first in range(part * HEIGHT, n_rows, parts * HEIGHT):
        rows = (first + tl.arange(0, HEIGHT)).to(tl.int64)
        inside = (rows < n_rows)[:, None] & (cols < n_outs)[None, :]
        tile = tl.load(dy_ptr + rows[:, None] * n_outs + cols[None, :], mask=inside, other=0.0)
        added += tile.to(tl.float32)
    store(partial_ptr + part.to(tl.int64) * n_outs, cols, n_outs, tl.sum(added, axis=0))


@triton_op("course::bias_gradient", mutates_args=())
def bias_gradient_op(dy: torch.Tensor) -> torch.Tensor:
    """The sums of the columns of dy, contiguous: first those of parts of the rows, then of the parts."""
    n_rows, n_outs = dy.shape
    parts = min(PARTS, triton.cdiv(n_rows, HEIGHT))
    partial = torch.empty((parts, n_outs), device=dy.device, dtype=torch.float32)
    on(partial_sums_kernel, dy)[(triton.cdiv(n_outs, WIDTH), parts)](dy, partial, n_rows, n_outs)
    dbias = torch.empty((n_outs,), device=dy.device, dtype=dy.dtype)
    column_sums(partial, dbias)
    return dbias


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
        # First what Linear owns, so that z is gone before dz is made.
        dbias = bias_gradient_op(dy)
        dweight = torch.mm(dy.t(), layer_norm_op(x, gamma, beta, ctx.eps))
        dx, dgamma, dbeta = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
