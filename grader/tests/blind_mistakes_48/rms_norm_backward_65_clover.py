# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | First: `scales = tl.load(rstd_ptr + down, ...)` in `weight_gradient_kernel` stands before the loop, so all later tiles of a group use rstd of the rows of its first tile; it should be loaded for the rows of each tile. dweight is wrong with more than 256 rows (16 groups of 16). Second: `return dy if dy.stride(0) >= dy.shape[1] else dy.contiguous()` in `in_rows` looks at the row stride only and should ask whether the columns are contiguous (`dy.stride(1) == 1`, or call `contiguous()` always): with dy of every second column of a wider matrix the gradients of `rms_norm` are wrong.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 16  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def row_of_dx(g, x, rstd, sum_gx, N_COLS: tl.constexpr):
    """rstd * (g - n * mean(g * n)) with n = x * rstd."""
    n = x * rstd
    return rstd * (g - n * (sum_gx * rstd / N_COLS))


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
    """dx of row i and its rstd; program i computes row i, which is loaded once where it is a single block."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    eps = tl.cast(eps, tl.float32)
    if N_COLS <= BLOCK:
        cols = tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        rstd = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N_COLS + eps)
        store(dx_row, cols, N_COLS, row_of_dx(g, x, rstd, tl.sum(g * x, axis=0), N_COLS))
    else:
        squares = 0.0
        sum_gx = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = load(x_row, cols, N_COLS)
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS) * x, axis=0)
        rstd = 1.0 / tl.sqrt(squares / N_COLS + eps)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = load(x_row, cols, N_COLS)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_row, cols, N_COLS, row_of_dx(g, x, rstd, sum_gx, N_COLS))
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    # The row numbers of a tile, its addresses and the scales of its rows; the addresses move on in the loop.
    rows = group * ROWS + tl.arange(0, ROWS)[:, None]
    step = groups * ROWS
    down = rows.to(tl.int64)
    dy_tile = dy_ptr + down * stride_dy + cols[None, :]
    x_tile = x_ptr + down * stride_x + cols[None, :]
    scales = tl.load(rstd_ptr + down, mask=rows < n_rows, other=0.0)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, step):
        inside = (start + tl.arange(0, ROWS)[:, None] < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_tile, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * x * scales
        dy_tile += step * tl.cast(stride_dy, tl.int64)
        x_tile += step * tl.cast(stride_x, tl.int64)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
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


def in_rows(dy):
    """dy as the kernels take it; a copy only where its rows are not in place already."""
    return dy if dy.stride(0) >= dy.shape[1] else dy.contiguous()


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
        dx, dweight = backward_op(in_rows(dy), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
