# labs/lab4_production_slice/rms_norm_backward.py | error | weight_gradient_kernel does not compile: rows is a vector of ROWS numbers here, so rstd = load(rstd_ptr, rows, n_rows) has shape (16,), and dy * x * rstd multiplies a (16, 128) tile by it, which Triton takes as (1, 16): incompatible shapes 128 and 16. In every case of rms_norm_backward and rms_norm. It should be rstd[:, None], one number for each row of the tile.
"""RMSNorm: the gradients for x and the weight, and the norm for autograd."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        gx = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS) * x
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(gx, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = sum_gx * rstd / N_COLS
    for first in range(0, N_COLS, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, (g - n * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    lanes = tl.arange(0, ROWS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = (first + lanes).to(tl.int64)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        dy_tile = dy_ptr + rows[:, None] * stride_dy + cols[None, :]
        x_tile = x_ptr + rows[:, None] * stride_x + cols[None, :]
        dy = tl.load(dy_tile, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32)
        rstd = load(rstd_ptr, rows, n_rows)
        dweight += dy * x * rstd
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    width = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, **width
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        return (*backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None)


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
