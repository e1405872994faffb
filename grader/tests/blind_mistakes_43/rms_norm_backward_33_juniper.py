# labs/lab4_production_slice/rms_norm_backward.py | corner | In `weight_gradient_kernel` the mask is `exists = rows < n_rows`; it should be `rows < last`, the end of the group. Groups have `per_group = cdiv(n_rows, groups)` rows, and where this is no multiple of 16 and there are several groups, the last tile of a group also adds the first rows of the next group: dweight of `rms_norm_backward` and `rms_norm` is wrong for 37, 29 or 600 rows, and right for up to 16, 301 or 1000 rows. dx is right.
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
def rstd_of(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean of the squares + eps), in fp32."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


@triton.jit
def gradient(x, g, rstd, sum_gx, N_COLS: tl.constexpr):
    """dx = rstd * (g - n * mean(g * n)) with n = x * rstd."""
    return rstd * (g - x * rstd * (sum_gx * rstd / N_COLS))


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
    """dx of one row; program i computes row i, and keeps its rstd in element i of an fp32 vector."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    cols = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:  # one block, which stays in registers
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        rstd = rstd_of(tl.sum(x * x, axis=0), eps, N_COLS)
        store(dx_row, cols, N_COLS, gradient(x, g, rstd, tl.sum(g * x, axis=0), N_COLS))
        tl.store(rstd_ptr + row, rstd)
    else:
        squares, sum_gx = 0.0, 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + cols, N_COLS)
            g = load(dy_row, start + cols, N_COLS) * load(weight_ptr, start + cols, N_COLS)
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(g * x, axis=0)
        rstd = rstd_of(squares, eps, N_COLS)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + cols, N_COLS)
            g = load(dy_row, start + cols, N_COLS) * load(weight_ptr, start + cols, N_COLS)
            store(dx_row, start + cols, N_COLS, gradient(x, g, rstd, sum_gx, N_COLS))
        tl.store(rstd_ptr + row, rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, per_group, stride_dy, stride_x
):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    Group k has the `per_group` rows from k * per_group on. Its sums go to row k of sums, (groups, n_cols)
    fp32.
    """
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * per_group
    last = tl.minimum(first + per_group, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        exists = rows < n_rows
        inside = exists & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
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
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    groups = sums.shape[0]
    per_group = triton.cdiv(n_rows, groups)
    strides = dy.stride(0), x.stride(0)

    launch = on(dx_kernel, x)[(n_rows,)]
    launch(dy, x, weight, dx, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, rstd, sums, n_rows, n_cols, per_group, *strides)
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
