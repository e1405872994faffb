# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | `LayerNormLinear.backward`, function `layer_norm_linear`: `dx, dgamma, dbeta = backward_op(dz, z, gamma, ctx.eps)` gives the gradient of the norm the result z of the norm in place of its input; it should be `backward_op(dz, x, gamma, ctx.eps)`. dx and dgamma are wrong in all cases; y, dbeta, dweight and dbias are right.
"""LayerNorm and the Linear layer behind it as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on
from torch.library import triton_op

OUTS, COLS, ROWS = 64, 64, 32  # the tile of a program, and the rows of a step


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
def linear_gradient_kernel(
    dy_ptr,
    z_ptr,
    dweight_ptr,
    dbias_ptr,
    n_rows,
    n_outs,
    n_cols,
    OUTS: tl.constexpr,
    COLS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """dweight = dy.T @ z and dbias, the sums of the columns of dy, all contiguous.

    Program (i, j) computes columns i and outputs j of dweight, ROWS rows of dy and z at a time. Those with the
    first columns store dbias, too.
    """
    outs = (tl.program_id(axis=1) * OUTS + tl.arange(0, OUTS)).to(tl.int64)
    cols = (tl.program_id(axis=0) * COLS + tl.arange(0, COLS)).to(tl.int64)
    product = tl.zeros((OUTS, COLS), dtype=tl.float32)
    sums = tl.zeros((ROWS, OUTS), dtype=tl.float32)
    for start in range(0, n_rows, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        dy = tl.load(
            dy_ptr + rows * n_outs + outs[None, :],
            mask=(rows < n_rows) & (outs[None, :] < n_outs),
            other=0.0,
        )
        z = tl.load(
            z_ptr + rows * n_cols + cols[None, :],
            mask=(rows < n_rows) & (cols[None, :] < n_cols),
            other=0.0,
        )
        product = tl.dot(tl.trans(dy), z, product, input_precision="ieee")
        sums += dy.to(tl.float32)
    tl.store(
        dweight_ptr + outs[:, None] * n_cols + cols[None, :],
        product.to(dweight_ptr.dtype.element_ty),
        mask=(outs[:, None] < n_outs) & (cols[None, :] < n_cols),
    )
    if tl.program_id(axis=0) == 0:
        dbias = tl.sum(sums, axis=0)
        tl.store(dbias_ptr + outs, dbias.to(dbias_ptr.dtype.element_ty), mask=outs < n_outs)


@triton_op("course::linear_gradients", mutates_args=())
def linear_gradients_op(dy: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of a Linear layer for its weight and its bias, where z went in and dy comes back."""
    n_rows, n_outs = dy.shape
    n_cols = z.shape[1]
    dweight = torch.empty((n_outs, n_cols), device=dy.device, dtype=dy.dtype)
    dbias = torch.empty((n_outs,), device=dy.device, dtype=dy.dtype)
    on(linear_gradient_kernel, dy)[(triton.cdiv(n_cols, COLS), triton.cdiv(n_outs, OUTS))](
        dy, z, dweight, dbias, n_rows, n_outs, n_cols, OUTS=OUTS, COLS=COLS, ROWS=ROWS
    )
    return dweight, dbias


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
        # First the Linear layer, with the norm's result as its input, then the norm.
        z = layer_norm_op(x, gamma, beta, ctx.eps)
        dweight, dbias = linear_gradients_op(dy, z)
        dz = torch.mm(dy, weight)
        dx, dgamma, dbeta = backward_op(dz, z, gamma, ctx.eps)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
