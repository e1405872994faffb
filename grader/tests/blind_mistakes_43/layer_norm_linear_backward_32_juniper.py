# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | In `LayerNormLinear.backward` (`layer_norm_linear`) `torch.mm(dy.view(n_outs, n_rows), z)` takes dy in the order of memory under another shape instead of transposing it; it should be `torch.mm(dy.t(), z)`. dweight is wrong unless there is one row or one output; all other results are right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, on, store
from torch.library import triton_op

GROUPS = 64  # of rows at most, each with its own sums
ROWS, COLS = 32, 64  # the tile that a program of group_sums_kernel loads


@triton.jit
def group_sums_kernel(terms_ptr, sums_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Row k of sums, (groups, n_cols) fp32, is the sum of the rows of group k; program (i, k) has COLS of it.

    The rows are dealt out to the groups ROWS at a time.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        total += tl.load(terms_ptr + rows * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(total, axis=0))


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
    """The sums of the columns of a contiguous matrix: groups of rows first, then the groups."""
    n_rows, n_cols = terms.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = terms.new_empty((groups, n_cols), dtype=torch.float32)
    out = terms.new_empty((n_cols,))
    launch = on(group_sums_kernel, terms)[(triton.cdiv(n_cols, COLS), groups)]
    launch(terms, sums, n_rows, n_cols, ROWS=ROWS, COLS=COLS)
    column_sums(sums, out)
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
        wants_x, wants_gamma, wants_beta, wants_weight, wants_bias, _ = ctx.needs_input_grad
        dy = dy.contiguous()
        n_rows, n_outs = dy.shape

        dx, dgamma, dbeta = None, None, None
        if wants_x or wants_gamma or wants_beta:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)

        dweight = None
        if wants_weight:
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.view(n_outs, n_rows), z)

        dbias = column_sums_op(dy) if wants_bias else None
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
