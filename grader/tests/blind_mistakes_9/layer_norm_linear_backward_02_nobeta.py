# labs/lab4_production_slice/layer_norm_linear_backward.py | wrong everywhere | beta is not saved, and `z` for dweight is computed with a bias of zeros (`torch.zeros_like(gamma)`): z must be n * gamma + beta, so dweight lacks (sum of dy over rows) times beta. dweight is wrong unless beta is 0, the other gradients are right
"""LayerNorm + Linear as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from layer_norm_backward import backward_op
from layer_norm_linear import layer_norm_linear_forward
from rows import on, store
from torch.library import triton_op


@triton.jit
def bias_gradient_kernel(dy_ptr, dbias_ptr, n_rows, n_outs, ROWS: tl.constexpr, COLS: tl.constexpr):
    """The sums of the columns of dy, which is contiguous."""
    j = tl.program_id(0) * COLS + tl.arange(0, COLS)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for i in range(0, n_rows, ROWS):
        r = (i + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (r < n_rows) & (j[None, :] < n_outs)
        acc += tl.load(dy_ptr + r * n_outs + j[None, :], mask=inside, other=0.0).to(tl.float32)
    store(dbias_ptr, j, n_outs, tl.sum(acc, axis=0))


@triton_op("course::layer_norm_linear", mutates_args=())
def forward_op(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    return layer_norm_linear_forward(x, gamma, beta, weight, bias, eps=eps)


@triton_op("course::bias_gradient", mutates_args=())
def bias_gradient_op(dy: torch.Tensor) -> torch.Tensor:
    n_rows, n_outs = dy.shape
    dbias = torch.empty((n_outs,), device=dy.device, dtype=dy.dtype)
    on(bias_gradient_kernel, dy)[(triton.cdiv(n_outs, 64),)](dy, dbias, n_rows, n_outs, ROWS=32, COLS=64)
    return dbias


class LayerNormLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, gamma, beta, weight, bias, eps):
        # beta and bias are only added: no gradient depends on them
        ctx.save_for_backward(x, gamma, weight)
        ctx.eps = eps
        return forward_op(x, gamma, beta, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, gamma, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx, dgamma, dbeta = backward_op(torch.mm(dy, weight), x, gamma, ctx.eps)
        z = layer_norm_op(x, gamma, torch.zeros_like(gamma), ctx.eps)
        return dx, dgamma, dbeta, torch.mm(dy.T, z), bias_gradient_op(dy), None


def layer_norm_linear(x, gamma, beta, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNormLinear.apply(x, gamma, beta, weight, bias, eps)
