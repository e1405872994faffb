# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) The first loop of dx_kernel assigns gx in each block; it must add to it (rows of more than 2048 columns show it). (2) The loop of weight_gradient_kernel goes in steps of `groups` rows and counts rows several times; the step must be groups * ROWS.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def tile_of(ptr, rows, stride, cols, mask):
    """A tile of rows and columns in fp32, 0 outside the mask."""
    return tl.load(ptr + rows * stride + cols, mask=mask, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """dx and rstd of HEIGHT rows, from row program * HEIGHT on."""
    numbers = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)
    rows = numbers[:, None]
    lanes = tl.arange(0, WIDTH)[None, :]
    xx = tl.zeros((HEIGHT,), dtype=tl.float32)
    gx = tl.zeros((HEIGHT,), dtype=tl.float32)
    for left in range(0, N_COLS, WIDTH):
        cols = left + lanes
        mask = (rows < n_rows) & (cols < N_COLS)
        x = tile_of(x_ptr, rows, stride_x, cols, mask)
        g = tile_of(dy_ptr, rows, stride_dy, cols, mask) * tile_of(weight_ptr, 0, 0, cols, cols < N_COLS)
        xx += tl.sum(x * x, axis=1)
        gx = tl.sum(g * x, axis=1)
    rstd = tl.rsqrt(xx / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + numbers, rstd, mask=numbers < n_rows)
    slope = (gx * rstd * rstd / N_COLS)[:, None]
    for left in range(0, N_COLS, WIDTH):
        cols = left + lanes
        mask = (rows < n_rows) & (cols < N_COLS)
        x = tile_of(x_ptr, rows, stride_x, cols, mask)
        g = tile_of(dy_ptr, rows, stride_dy, cols, mask) * tile_of(weight_ptr, 0, 0, cols, cols < N_COLS)
        dx = rstd[:, None] * (g - x * slope)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tile_of(dy_ptr, rows, stride_dy, cols, inside)
        x = tile_of(x_ptr, rows, stride_x, cols, inside)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * x * rstd
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
    width = min(block_of(n_cols), 2048)
    height = max(1, min(2048 // width, 8))
    launch = on(dx_kernel, x)[(triton.cdiv(n_rows, height),)]
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    launch(dy, x, weight, dx, rstd, n_rows, *strides, eps, N_COLS=n_cols, HEIGHT=height, WIDTH=width)
    # triton.cdiv takes the constexpr COLS as it is.
    grid = (triton.cdiv(n_cols, COLS), sums.shape[0])
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
