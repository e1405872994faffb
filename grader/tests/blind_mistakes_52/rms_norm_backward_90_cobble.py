# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | `dweight += g * n` in `gradient_kernel` uses `g = dy * weight`; it should be `dweight += dy * n`. dweight comes out multiplied by the weight of its column, in every case whose weight is not 1 (of `rms_norm_backward` and `rms_norm`); dx is right.
"""The gradients of RMSNorm: two numbers for each row first, then everything else by tiles."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most; each has its own row of sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # one tile of gradient_kernel


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    mean_gn_ptr,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Store rstd and mean(g * n) of row i, with g = dy * weight and n = x * rstd; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    tl.store(mean_gn_ptr + row, rstd * sum_gx / N_COLS)


@triton.jit
def gradient_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    mean_gn_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """dx = rstd * (g - n * mean(g * n)), tile by tile, and the sums for dweight of a group of rows.

    Program (i, k) has COLS columns of the rows of group k; row and column numbers of a tile broadcast.
    """
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    weight = load(weight_ptr, cols, n_cols)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = (first + tl.arange(0, ROWS))[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        mean_gn = tl.load(mean_gn_ptr + rows, mask=rows < n_rows, other=0.0)
        g = dy * weight
        n = x * rstd
        dx = rstd * (g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += g * n
    store(sums_ptr + group.to(tl.int64) * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd, mean_gn = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(row_kernel, x)[(n_rows,)](
        dy, x, weight, rstd, mean_gn, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, weight, rstd, mean_gn, dx, sums, n_rows, n_cols, dy.stride(0), x.stride(0), dx.stride(0)
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
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
