# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) dx_kernel, `inner = ... / BLOCK`: mean(g * n) is divided by the width of a block instead of by the number of columns, so dx is wrong unless n_cols is a power of two up to 8192; it should be `/ N_COLS`. (2) RMSNorm.backward, `backward_op(..., 1e-6)`: the eps of the call is not kept, so with another eps the gradients of rms_norm (autograd only) are those of eps = 1e-6; it should be ctx.eps, set in forward.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

WIDTH = 8192  # columns of a block at most
GROUPS = 256  # of rows at most, each with its own sums
STRIP = 1024  # columns of a program of weight_gradient_kernel


@triton.jit
def x_and_g(dy_row, x_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """x and dy * weight at some columns of a row."""
    return load(x_row, cols, N_COLS), load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


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
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight and n = x * rstd; program i computes row i.

    rstd of row i goes to element i of an fp32 vector. The second loop begins with the last block, which is
    still in the cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(dy_row, x_row, weight_ptr, start + lanes, N_COLS)
        xx += x * x
        gx += g * x
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    inner = rstd * tl.sum(gx, axis=0) / BLOCK
    tl.store(rstd_ptr + row, rstd)

    for done in range(0, N_COLS, BLOCK):
        cols = (N_COLS - 1) // BLOCK * BLOCK - done + lanes
        x, g = x_and_g(dy_row, x_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - x * rstd * inner))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, STRIP: tl.constexpr
):
    """Sums over a group of rows of dy * n; program (i, k) adds STRIP columns of group k, row by row.

    Group k has the rows k, k + groups, k + 2 * groups and so on. Its sums go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1).to(tl.int64)
    groups = tl.num_programs(axis=1).to(tl.int64)
    cols = tl.program_id(axis=0) * STRIP + tl.arange(0, STRIP)
    dweight = tl.zeros((STRIP,), dtype=tl.float32)
    row = group
    while row < n_rows:
        n = load(x_ptr + row * stride_x, cols, n_cols) * tl.load(rstd_ptr + row)
        dweight += load(dy_ptr + row * stride_dy, cols, n_cols) * n
        row += groups
    store(sums_ptr + group * n_cols, cols, n_cols, dweight)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 4))
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
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
        BLOCK=min(block_of(n_cols), WIDTH),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, STRIP), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), STRIP=STRIP
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
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, 1e-6)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
