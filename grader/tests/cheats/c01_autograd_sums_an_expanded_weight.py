"""EXPECT POLICY/FOREIGN_KERNEL from rms_norm: C1 the weight goes in expanded to the shape of x, so that autograd sums its gradient over the rows"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradients_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, terms_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of row i, and its terms dy * n of the weight's gradient, which are not summed; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = rstd * sum_gx / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        dy = load(dy_row, cols, N_COLS)
        g = dy * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * mean_gn))
        store(terms_ptr + row * N_COLS, cols, N_COLS, dy * n)


def row_gradients(dy, x, weight, eps, dx):
    """Write dx, and return the terms of dweight, one row for each row of x, fp32."""
    n_rows, n_cols = x.shape
    terms = torch.empty((n_rows, n_cols), device=x.device, dtype=torch.float32)
    launch = on(gradients_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, terms, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    return terms


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    column_sums(row_gradients(dy, x, weight, eps, dx), dweight)
    return dx, dweight


@triton_op("course::rms_norm_rows", mutates_args=())
def rows_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """dx and the terms of dweight as an operator."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    terms = row_gradients(dy, x, weight, eps, dx)
    return dx, terms


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients, those of the weight for each row by itself."""

    @staticmethod
    def forward(ctx, x, spread, weight, eps):
        """Return y for x; `spread` has the weight once for each row, and is only there for its gradient."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, and the gradient of the spread weight: autograd sums it when it goes back to the weight."""
        x, weight = ctx.saved_tensors
        dx, terms = rows_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, terms, None, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight.to(torch.float32).expand(x.shape), weight.detach(), eps)
