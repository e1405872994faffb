# labs/lab4_production_slice/layer_norm_linear_backward.py | corner | In `LayerNormLinear.backward`, `if wanted[0] or wanted[1]:` should be `if wanted[0] or wanted[1] or wanted[2]:`. Where beta needs a gradient but neither x nor gamma does (gradients asked for in any combination), dbeta is None instead of the gradient; all else is right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import column_sums, on, store
from torch.library import triton_op

SHARES = 64  # of rows at most: so many programs add up the same columns
TALL, WIDE = tl.constexpr(32), tl.constexpr(64)


@triton.jit
def shares_kernel(terms_ptr, sums_ptr, n_rows, n_cols):
    """Row k of sums, (shares, n_cols) fp32, has the sums of the columns of terms over share k of the rows.

    terms is (n_rows, n_cols) and contiguous. A share is a run of whole tiles of TALL rows, one behind the other.
    """
    share = tl.program_id(axis=1)
    length = tl.cdiv(tl.cdiv(n_rows, TALL), tl.num_programs(axis=1)) * TALL
    first = share * length
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    total = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(first, tl.minimum(first + length, n_rows), TALL):
        rows = (start + tl.arange(0, TALL)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        total += tl.load(terms_ptr + rows * n_cols + cols[None, :], mask=inside, other=0.0).to(tl.float32)
    store(sums_ptr + share * n_cols, cols, n_cols, tl.sum(total, axis=0))


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
    """The sums of the columns of terms, contiguous: of shares of the rows, and then of these."""
    n_rows, n_cols = terms.shape
    out = torch.empty((n_cols,), device=terms.device, dtype=terms.dtype)
    shares = min(SHARES, triton.cdiv(n_rows, TALL))
    sums = torch.empty((shares, n_cols), device=terms.device, dtype=torch.float32)
    on(shares_kernel, terms)[(triton.cdiv(n_cols, WIDE), shares)](terms, sums, n_rows, n_cols)
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
        """Return dx, dgamma, dbeta, dweight and dbias for dy, and None for eps.

        What nobody asks for is not computed: a frozen layer costs no product.
        """
        x, gamma, beta, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        dy = dy.contiguous()
        if wanted[0] or wanted[1]:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        if wanted[3]:
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.t(), z)
        if wanted[4]:
            dbias = column_sums_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
