# labs/lab4_production_slice/rms_norm_backward.py | corner | dx_kernel loads the weight once, before the loops, for columns 0 to BLOCK - 1 (`weight = load(weight_ptr, lanes, N_COLS)`) and uses it in every block of the row: right for rows of one block, but for n_cols > 16384 the columns of later blocks are multiplied by the weights of the first block, so sum(g * n) and dx (all of the row, most of all the later blocks) are wrong; dweight is right. Should load the weight at `cols` inside both loops.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 2048  # of dx_kernel at most; each takes every PROGRAMS-th row
GROUPS = 64  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(8), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - n * mean(g * n)) with g = dy * weight and n = x * rstd, for some of the rows.

    rstd of row i goes to element i of an fp32 vector.
    """
    lanes = tl.arange(0, BLOCK)
    weight = load(weight_ptr, lanes, N_COLS)
    for index in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(index, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx

        squares = 0.0
        sum_gx = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            x = load(x_row, cols, N_COLS)
            g = load(dy_row, cols, N_COLS) * weight
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(g * x, axis=0)

        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)

        mean_gn = rstd * sum_gx / N_COLS
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = load(x_row, cols, N_COLS) * rstd
            g = load(dy_row, cols, N_COLS) * weight
            store(dx_row, cols, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, chunk, stride_dy, stride_x
):
    """Sums of dy * n over the rows of a group, for COLS columns; program (i, k) has group k.

    A group is `chunk` rows in succession, a multiple of ROWS; the last groups may have fewer, or none.
    """
    group = tl.program_id(axis=1)
    first = group.to(tl.int64) * chunk
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, chunk, ROWS):
        rows = first + start + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        total += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    tiles = triton.cdiv(n_rows, 8)
    groups = min(GROUPS, tiles)
    chunk = triton.cdiv(tiles, groups) * 8
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(min(n_rows, PROGRAMS),)](
        dy,
        x,
        weight,
        dx,
        rstd,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, chunk, dy.stride(0), x.stride(0)
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
