# labs/lab4_production_slice/rms_norm_backward.py | right | Right, but unusual: the second sweep of dx_kernel goes over the blocks from the last to the first, dx is rstd * (g - x * c) without n, and weight_gradient_kernel adds one row of 256 columns at a time, rows k, k + groups and so on.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most
SPAN = 16  # rows for which a group is worth while
WIDTH = tl.constexpr(256)  # columns of a program of weight_gradient_kernel


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
    LAST: tl.constexpr,
):
    """Row i of dx, and rstd of the row; LAST is the first column of the last block.

    The second sweep runs backwards: the blocks that the first one read last are still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        products += dy * load(weight_ptr, start + lanes, N_COLS) * x
        squares += x * x
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)

    # n * mean(g * n) = x * c
    c = rstd * (rstd * tl.sum(products, axis=0) / N_COLS)
    for back in range(0, N_COLS, BLOCK):
        cols = LAST - back + lanes
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - load(x_row, cols, N_COLS) * c))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k) adds WIDTH columns of the rows k, k + groups, k + 2 * groups, ... to row k of sums."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    for index in range(group, n_rows, groups):
        row = tl.cast(index, tl.int64)
        rstd = tl.load(rstd_ptr + row)
        n = load(x_ptr + row * stride_x, cols, n_cols) * rstd
        total += load(dy_ptr + row * stride_dy, cols, n_cols) * n
    store(sums_ptr + group * n_cols, cols, n_cols, total)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, SPAN))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    block = block_of(n_cols)
    on(dx_kernel, x)[(n_rows,)](
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
        BLOCK=block,
        LAST=(n_cols - 1) // block * block,
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, WIDTH), groups)](
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
