# labs/lab4_production_slice/rms_norm_backward.py | right | right
"""RMSNorm's gradients. A program of the column kernel walks down its columns row by row, without a second axis."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_WALKERS = 64  # programs for the same columns
STRIP = 256  # columns of a program


@triton.jit
def gradient(g, n, rstd, mean_gn):
    """dx where mean(g * n) is known."""
    return rstd * (g - n * mean_gn)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dx_ptr,
    rstd_ptr,
    dy_ptr,
    x_ptr,
    weight_ptr,
    stride_dx,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Row i of dx, and element i of rstd, by program i."""
    i = tl.program_id(axis=0).to(tl.int64)
    dx_row = dx_ptr + i * stride_dx
    dy_row = dy_ptr + i * stride_dy
    x_row = x_ptr + i * stride_x
    cols = tl.arange(0, BLOCK)
    eps32 = tl.cast(eps, tl.float32)
    if N_COLS > BLOCK:
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + cols, N_COLS)
            g = load(dy_row, start + cols, N_COLS) * load(weight_ptr, start + cols, N_COLS)
            squares += x * x
            products += g * x
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + eps32)
        mean_gn = rstd * (tl.sum(products, axis=0) / N_COLS)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + cols, N_COLS)
            g = load(dy_row, start + cols, N_COLS) * load(weight_ptr, start + cols, N_COLS)
            store(dx_row, start + cols, N_COLS, gradient(g, x * rstd, rstd, mean_gn))
    else:
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + eps32)
        n = x * rstd
        mean_gn = tl.sum(g * n, axis=0) / N_COLS
        store(dx_row, cols, N_COLS, gradient(g, n, rstd, mean_gn))
    tl.store(rstd_ptr + i, rstd)


@triton.jit
def strip_kernel(
    sums_ptr, rstd_ptr, dy_ptr, x_ptr, n_rows, n_cols, stride_dy, stride_x, STRIP_COLS: tl.constexpr
):
    """Row k of sums, (walkers, n_cols) fp32: dy * n added up over the rows k, k + walkers, k + 2 * walkers ..."""
    walker = tl.program_id(axis=0)
    walkers = tl.num_programs(axis=0)
    cols = tl.program_id(axis=1) * STRIP_COLS + tl.arange(0, STRIP_COLS)
    inside = cols < n_cols
    dy_at = dy_ptr + walker.to(tl.int64) * stride_dy + cols
    x_at = x_ptr + walker.to(tl.int64) * stride_x + cols
    dy_step = walkers.to(tl.int64) * stride_dy
    x_step = walkers.to(tl.int64) * stride_x
    total = tl.zeros((STRIP_COLS,), dtype=tl.float32)
    for row in range(walker, n_rows, walkers):
        rstd = tl.load(rstd_ptr + row)
        dy = tl.load(dy_at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_at, mask=inside, other=0.0).to(tl.float32)
        total += dy * (x * rstd)
        dy_at += dy_step
        x_at += x_step
    store(sums_ptr + walker * n_cols, cols, n_cols, total)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    n_rows, n_cols = x.shape
    if dx is None:
        dx = x.new_empty((n_rows, n_cols))
    if dweight is None:
        dweight = weight.new_empty((n_cols,))
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dx,
        rstd,
        dy,
        x,
        weight,
        dx.stride(0),
        dy.stride(0),
        x.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    sums = x.new_empty((min(MOST_WALKERS, n_rows), n_cols), dtype=torch.float32)
    on(strip_kernel, x)[(sums.shape[0], triton.cdiv(n_cols, STRIP))](
        sums, rstd, dy, x, n_rows, n_cols, dy.stride(0), x.stride(0), STRIP_COLS=STRIP
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        grads = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return *grads, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
