# labs/lab4_production_slice/rms_norm_backward.py | right | Rows of at most 2048 columns: one kernel with up to 256 programs that walk over the rows, write dx and keep the sums of dy * n of a whole row in registers, so that x and dy are read once. Longer rows take two kernels, with tiles of 32 x 64 and 64 groups. Helper functions that return tuples.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 64  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)  # the tile that a program of weight_gradient_kernel loads
NARROW = 2048  # columns at most of a row that one program takes as a whole, together with many others
PROGRAMS = 256  # of such rows at most
FEW_WARPS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.jit
def sums_of(g, x):
    """The sums of x * x and of g * x."""
    return tl.sum(x * x, axis=0), tl.sum(g * x, axis=0)


@triton.jit
def row_of_dx(g, x, rstd, sum_gx, N_COLS: tl.constexpr):
    """rstd * (g - n * mean(g * n)), where n = x * rstd."""
    n = x * rstd
    return rstd * (g - n * (rstd * (sum_gx / N_COLS)))


@triton.autotune(configs=FEW_WARPS, key=["N_COLS"])
@triton.jit
def both_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx and the sums of dy * n in one sweep; program k takes rows k, k + programs, k + 2 * programs, ...

    A row is a single block. The weight stays in registers, and so do the sums, which go to row k of sums.
    """
    first = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    for number in range(first, n_rows, tl.num_programs(axis=0)):
        row = tl.cast(number, tl.int64)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        g = dy * weight
        squares, sum_gx = sums_of(g, x)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        store(dx_ptr + row * stride_dx, cols, N_COLS, row_of_dx(g, x, rstd, sum_gx, N_COLS))
        dweight += dy * (x * rstd)
    store(sums_ptr + first.to(tl.int64) * N_COLS, cols, N_COLS, dweight)


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
    """dx alone, for rows of any length; program i computes row i, and stores its rstd for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        of_squares, of_gx = sums_of(g, load(x_row, cols, N_COLS))
        squares += of_squares
        sum_gx += of_gx
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dx = row_of_dx(g, load(x_row, cols, N_COLS), rstd, sum_gx, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, tl.num_programs(axis=1) * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0))
    store(sums_ptr + group.to(tl.int64) * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given. Short rows are read once, longer ones twice.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty((n_cols,), device=x.device, dtype=weight.dtype) if dweight is None else dweight
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    if n_cols <= NARROW:
        groups = min(PROGRAMS, n_rows)
        sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
        on(both_kernel, x)[(groups,)](
            dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
        )
    else:
        groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
        sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
        rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
        on(dx_kernel, x)[(n_rows,)](
            dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
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
