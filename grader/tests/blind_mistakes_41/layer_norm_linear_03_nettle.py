# labs/lab4_production_slice/layer_norm_linear.py | wrong everywhere | In `LayerNormLinear.backward` the line `dx, dgamma, dbeta = backward_op(dz, z, gamma, ctx.eps)` hands the result z of the norm to the gradients of the norm; it should be x, the input of the norm. dx and dgamma are wrong in nearly all cases (mean and rstd are those of z); y, dbeta, dweight and dbias are right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, on
from torch.library import triton_op

PARTS = 32  # of the rows, at most, each with its own sums
TILE_ROWS, TILE_COLS = 32, 64


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
def partial_sums_kernel(
    terms_ptr, partial_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Row k of partial, (parts, n_cols) fp32, sums every parts-th tile of ROWS rows, from tile k on."""
    part = tl.program_id(axis=1)
    parts = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(part * ROWS, n_rows, parts * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        total += tl.load(terms_ptr + rows.to(tl.int64) * n_cols + cols, mask=inside, other=0.0).to(tl.float32)
    sums = tl.sum(total, axis=0)[None, :]
    tl.store(partial_ptr + part.to(tl.int64) * n_cols + cols, sums, mask=cols < n_cols)


@triton_op("course::column_sums", mutates_args=())
def column_sums_op(terms: torch.Tensor) -> torch.Tensor:
    """The sums of the columns of terms, contiguous, in two steps, so that many rows are added side by side."""
    n_rows, n_cols = terms.shape
    parts = min(PARTS, triton.cdiv(n_rows, TILE_ROWS))
    partial = torch.empty((parts, n_cols), device=terms.device, dtype=torch.float32)
    out = torch.empty((n_cols,), device=terms.device, dtype=terms.dtype)
    on(partial_sums_kernel, terms)[(triton.cdiv(n_cols, TILE_COLS), parts)](
        terms, partial, n_rows, n_cols, ROWS=TILE_ROWS, COLS=TILE_COLS
    )
    column_sums(partial, out)
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

        # The Linear layer: its input was z, the result of the norm, which is computed once more.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dz = torch.mm(dy, weight)
        dweight = torch.mm(dy.t(), z)
        dbias = column_sums_op(dy)

        # The norm in front of it.
        dx, dgamma, dbeta = backward_op(dz, z, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
