# labs/lab4_production_slice/layer_norm_linear_backward.py | error | partial_sums_kernel reduces its tile of ROWS x COLS over the wrong axis: `tl.sum(tile, axis=1)` leaves ROWS = 16 numbers, which cannot be stored to COLS = 64 columns, so the kernel does not compile (nor run in the interpreter), in every case of layer_norm_linear; it should be axis=0
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, on, store
from torch.library import triton_op

ROWS, COLS = 16, 64
GROUPS = 64  # of rows: dy has many more rows than the sums of a norm, and few columns


@triton.jit
def partial_sums_kernel(terms_ptr, sums_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Row k of sums holds the sums over group k of the rows of terms; program (i, k) adds COLS columns."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = first + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        terms = tl.load(terms_ptr + rows.to(tl.int64) * n_cols + cols[None, :], mask=inside, other=0.0)
        tile += terms.to(tl.float32)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(tile, axis=1))


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
    """Sums of the columns: of groups of rows first, and column_sums of these, so that no SM is idle."""
    n_rows, n_cols = terms.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = torch.empty((groups, n_cols), device=terms.device, dtype=torch.float32)
    on(partial_sums_kernel, terms)[(triton.cdiv(n_cols, COLS), groups)](
        terms, sums, n_rows, n_cols, ROWS=ROWS, COLS=COLS
    )
    out = torch.empty((n_cols,), device=terms.device, dtype=terms.dtype)
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
        dy = dy.contiguous()
        dx, dgamma, dbeta = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        dweight = torch.mm(dy.t(), layer_norm_op(x, gamma, beta, ctx.eps))
        dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
