# labs/lab4_production_slice/rms_norm_backward.py | corner | In weight_gradient_kernel a group has a stretch of `share` rows side by side, but `inside` tests `rows < n_rows` where it should test `rows < last`: if share is not a multiple of 16 and there are several groups (29 or 1000 rows, say), the last tile of a group also adds rows of the next group, and dweight counts these twice. Right for up to 16 rows, and where cdiv(n_rows, groups) is a multiple of 16.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def g_and_x(dy_row, x_row, weight_ptr, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """dy * weight and x of BLOCK columns from start on, 0 past the end of the row."""
    cols = start + tl.arange(0, BLOCK)
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    x = load(x_row, cols, N_COLS)
    return g, x


@triton.jit
def gradient(g, x, rstd, sum_gx, N_COLS: tl.constexpr):
    """rstd * (g - n * mean(g * n)), where n is x * rstd."""
    along = rstd * sum_gx / N_COLS
    return rstd * (g - (x * rstd) * along)


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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes row i.

    n is the normalised row, x * rstd. rstd of row i goes to element i of an fp32 vector.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    if N_COLS <= BLOCK:
        # The row is one block: it is loaded once and used twice.
        g, x = g_and_x(dy_row, x_row, weight_ptr, 0, N_COLS, BLOCK)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)
        dx = gradient(g, x, rstd, tl.sum(g * x, axis=0), N_COLS)
        store(dx_row, tl.arange(0, BLOCK), N_COLS, dx)
    else:
        squares = 0.0
        sum_gx = 0.0
        for start in range(0, N_COLS, BLOCK):
            g, x = g_and_x(dy_row, x_row, weight_ptr, start, N_COLS, BLOCK)
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(g * x, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)
        for start in range(0, N_COLS, BLOCK):
            g, x = g_and_x(dy_row, x_row, weight_ptr, start, N_COLS, BLOCK)
            dx = gradient(g, x, rstd, sum_gx, N_COLS)
            store(dx_row, start + tl.arange(0, BLOCK), N_COLS, dx)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    Each group has a stretch of rows that lie side by side, so that its loads walk through memory in order. The
    sums of group k go to row k of sums, (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    share = tl.cdiv(n_rows, groups)
    first = group * share
    last = tl.minimum(first + share, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for top in range(first, last, ROWS):
        rows = top + tl.arange(0, ROWS)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        at = rows.to(tl.int64)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)[:, None]
        x = tl.load(x_ptr + at * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    first_launch = on(dx_kernel, x)[(n_rows,)]
    first_launch(
        dy,
        x,
        weight,
        dx,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    second_launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    second_launch(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
