# work of others | labs/lab4_production_slice/rms_norm_backward.py | rms_norm | GOAL: the points of rms_norm without a kernel that sums over rows: the function gets weight.to(fp32).expand(x.shape), returns one term for each row as its gradient, and autograd's own backward of expand and to does the sum and the rounding, outside of the student's code
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    terms_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx as asked, and dy * n of each element in fp32; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    terms_row = terms_ptr + row * N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += x * x
        products += g * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = tl.sum(products, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        dy = load(dy_row, cols, N_COLS)
        g = dy * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * mean_gn))
        store(terms_row, cols, N_COLS, dy * n)


def gradients(dy, x, weight, eps, dx):
    """Write dx, and return dy * n, which nobody has summed yet."""
    n_rows, n_cols = x.shape
    terms = torch.empty((n_rows, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, terms, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )  # fmt: skip
    return terms


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty((x.shape[0], x.shape[1]), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    column_sums(gradients(dy, x, weight, eps, dx), dweight)
    return dx, dweight


class RMSNorm(torch.autograd.Function):
    """The operator with a gradient for a weight that has a row for each row of x."""

    @staticmethod
    def forward(ctx, x, wide, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, and the terms of dweight row by row."""
        x, weight = ctx.saved_tensors
        dx = torch.empty((x.shape[0], x.shape[1]), device=x.device, dtype=x.dtype)
        terms = gradients(dy.contiguous(), x, weight, ctx.eps, dx)
        return dx, terms, None, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward."""
    wide = weight.to(torch.float32).expand(x.shape[0], x.shape[1])
    return RMSNorm.apply(x, wide, weight.detach(), eps)
