# labs/lab4_production_slice/layer_norm_linear_backward.py | right | Computes only the gradients that `ctx.needs_input_grad` asks for; `column_sums_op` is a split sum with an own kernel (neighbouring rows, splits that differ by a row at most) and then the given `column_sums`.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, on, store
from torch.library import triton_op

SPLITS = 48  # of the rows at most, each with its own sums


@triton.jit
def rows_of_split(split, splits, n_rows):
    """First row of a split and the row behind its last one: splits differ by a row at most."""
    each = n_rows // splits
    more = n_rows % splits
    first = split * each + tl.minimum(split, more)
    return first, first + each + tl.where(split < more, 1, 0)


@triton.jit
def split_sums_kernel(dy_ptr, sums_ptr, n_rows, n_outs, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Sums of the columns over neighbouring rows of a contiguous matrix; program (i, k) has split k of them."""
    split = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first, end = rows_of_split(split, tl.num_programs(axis=1), n_rows)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, end, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < end)[:, None] & (cols < n_outs)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * n_outs + cols[None, :], mask=inside, other=0.0)
        total += dy.to(tl.float32)
    store(sums_ptr + split.to(tl.int64) * n_outs, cols, n_outs, tl.sum(total, axis=0))


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
    """The sums of the columns of a contiguous matrix, in its dtype; many rows are split among programs."""
    n_rows, n_outs = terms.shape
    splits = min(SPLITS, triton.cdiv(n_rows, 64))
    sums = torch.empty((splits, n_outs), device=terms.device, dtype=torch.float32)
    launch = on(split_sums_kernel, terms)[(triton.cdiv(n_outs, 64), splits)]
    launch(terms, sums, n_rows, n_outs, ROWS=32, COLS=64)
    out = torch.empty((n_outs,), device=terms.device, dtype=terms.dtype)
    column_sums(sums, out)
    return out


class LayerNormLinear(torch.autograd.Function):
    """The operator with its gradients; those that nobody asks for are not computed."""

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
        for_x, for_gamma, for_beta, for_weight, for_bias = ctx.needs_input_grad[:5]
        dy = dy.contiguous()
        of_norm = (None, None, None)
        dweight = None
        dbias = None
        if for_x or for_gamma or for_beta:
            of_norm = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        if for_weight:
            dweight = torch.mm(dy.t(), layer_norm_op(x, gamma, beta, ctx.eps))
        if for_bias:
            dbias = column_sums_op(dy)
        return *of_norm, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
