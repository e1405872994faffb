# labs/lab4_production_slice/layer_norm_linear_backward.py | error | `tl.sum(total, axis=1, keepdim=True)` and `tl.sum(squares, axis=1, keepdim=True)` in `normalise_kernel`: the parameter of Triton is `keep_dims`, `keepdim` is that of PyTorch. The kernel does not compile (TypeError: unexpected keyword argument), so each backward pass of `layer_norm_linear` fails; the forward pass is right.
"""LayerNorm and the Linear layer behind it as a differentiable operator.

The norm's result, which the gradient of the weight needs, is computed again by a kernel of this file that
takes several rows at once.
"""

import torch
import triton
import triton.language as tl
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import block_of, column_sums, load, on
from torch.library import triton_op

TALL = tl.constexpr(4)  # rows of a program


@triton.jit
def normalise_kernel(
    x_ptr, gamma_ptr, beta_ptr, z_ptr, n_rows, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """z = (x - mean) / sqrt(variance + eps) * gamma + beta; program i has TALL rows, BLOCK columns at a time.

    z is contiguous. Sums are tiles in the loops, and reduced to a column of TALL numbers behind them.
    """
    rows = (tl.program_id(axis=0) * TALL + tl.arange(0, TALL))[:, None].to(tl.int64)
    x_rows = x_ptr + rows * stride_x
    lanes = tl.arange(0, BLOCK)[None, :]

    total = tl.zeros((TALL, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        total += tl.load(x_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=1, keepdim=True) / N_COLS

    squares = tl.zeros((TALL, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = (rows < n_rows) & (start + lanes < N_COLS)
        x = tl.load(x_rows + start + lanes, mask=inside, other=0.0).to(tl.float32)
        difference = tl.where(inside, x - mean, 0.0)
        squares += difference * difference
    variance = tl.sum(squares, axis=1, keepdim=True) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        x = tl.load(x_rows + cols, mask=inside, other=0.0).to(tl.float32)
        z = (x - mean) * rstd * load(gamma_ptr, cols, N_COLS) + load(beta_ptr, cols, N_COLS)
        tl.store(z_ptr + rows * N_COLS + cols, z.to(z_ptr.dtype.element_ty), mask=inside)


@triton_op("course::normalised_again", mutates_args=())
def normalised_op(x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor, eps: float) -> torch.Tensor:
    """The result of the norm, contiguous, as an operator that torch.compile can look into."""
    n_rows, n_cols = x.shape
    z = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype)
    on(normalise_kernel, x)[(triton.cdiv(n_rows, TALL),)](
        x, gamma, beta, z, n_rows, x.stride(0), eps, N_COLS=n_cols, BLOCK=min(block_of(n_cols), 1024)
    )
    return z


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
    """column_sums as an operator that torch.compile can look into."""
    out = torch.empty((terms.shape[1],), device=terms.device, dtype=terms.dtype)
    column_sums(terms, out)
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
        dweight = torch.mm(dy.t(), normalised_op(x, gamma, beta, ctx.eps))
        return dx, dgamma, dbeta, dweight, column_sums_op(dy), None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
