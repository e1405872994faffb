# labs/lab4_production_slice/layer_norm_linear_backward.py | two mistakes | (1) In `LayerNormLinear.backward`, `if needed[0]:` also guards dgamma and dbeta, so gamma or beta get None where x needs no gradient; it must be `if needed[0] or needed[1] or needed[2]:`. (2) In `bias_gradient_kernel`, `for start in range(0, n_rows, OUTS):` must step by `ROWS`: with 32 rows a tile and steps of 64, rows 32 to 63 of each 64 are not in dbias, which shows with more than 32 rows.
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
def bias_gradient_kernel(dy_ptr, dbias_ptr, n_rows, n_outs, ROWS: tl.constexpr, OUTS: tl.constexpr):
    """dbias[j] = sum over i of dy[i, j], dy contiguous; program k has OUTS of the outputs.

    A tile of fp32 sums grows element by element, and is reduced once, behind the loop.
    """
    outs = tl.program_id(axis=0) * OUTS + tl.arange(0, OUTS)
    down = tl.arange(0, ROWS).to(tl.int64)
    sums = tl.zeros((ROWS, OUTS), dtype=tl.float32)
    for start in range(0, n_rows, OUTS):
        rows = start + down
        inside = (rows < n_rows)[:, None] & (outs < n_outs)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * n_outs + outs[None, :], mask=inside, other=0.0)
        sums += dy.to(tl.float32)
    store(dbias_ptr, outs, n_outs, tl.sum(sums, axis=0))


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


@triton_op("course::bias_gradient", mutates_args=())
def bias_gradient_op(dy: torch.Tensor) -> torch.Tensor:
    """The gradient of the bias as an operator that torch.compile can look into."""
    n_rows, n_outs = dy.shape
    dbias = torch.empty((n_outs,), device=dy.device, dtype=dy.dtype)
    on(bias_gradient_kernel, dy)[(triton.cdiv(n_outs, 64),)](dy, dbias, n_rows, n_outs, ROWS=32, OUTS=64)
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
        needed = ctx.needs_input_grad
        dx, dgamma, dbeta, dweight, dbias = None, None, None, None, None
        if needed[0]:
            dz = torch.mm(dy, weight)
            dx, dgamma, dbeta = backward_op(dz, x, gamma, ctx.eps)
        if needed[3]:
            # z is computed again: it is as large as x, and would have to be kept from one pass to the other.
            z = layer_norm_op(x, gamma, beta, ctx.eps)
            dweight = torch.mm(dy.t(), z)
        if needed[4]:
            dbias = bias_gradient_op(dy)
        return dx, dgamma, dbeta, dweight, dbias, None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_linear_forward, also under torch.compile."""
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
