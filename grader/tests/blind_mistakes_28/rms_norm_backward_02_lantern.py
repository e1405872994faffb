# labs/lab4_production_slice/rms_norm_backward.py | right | right
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
def x_and_g(x_row, dy_row, weight_ptr, cols, n_cols):
    """x and g = dy * weight at some columns of a row, in fp32; both are 0 past its end."""
    return load(x_row, cols, n_cols), load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


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
    lanes = tl.arange(0, BLOCK)

    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + lanes, N_COLS)
        xx += x * x
        gx += g * x
    squares = tl.sum(xx)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)

    # Back from the last block, which the cache may still have, to the first.
    BLOCKS: tl.constexpr = (N_COLS + BLOCK - 1) // BLOCK
    slope = tl.sum(gx) / N_COLS * rstd
    for done in range(0, BLOCKS):
        cols = (BLOCKS - 1 - done) * BLOCK + lanes
        x, g = x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - (x * rstd) * slope) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    A group is a run of whole tiles of ROWS rows; the last groups may have none. The sums of group k go to
    row k of sums, (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tiles = tl.cdiv(n_rows, ROWS)
    share = tl.cdiv(tiles, groups) * ROWS
    begin = group * share
    end = tl.minimum(begin + share, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(begin, end, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        alive = rows < end
        inside = alive & (cols < n_cols)
        n = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        n *= tl.load(rstd_ptr + rows, mask=alive, other=0.0)
        dweight += n * tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    step_dy, step_x, step_dx = dy.stride(0), x.stride(0), dx.stride(0)
    widths = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, rstd, step_dy, step_x, step_dx, eps, **widths)
    grid = (triton.cdiv(n_cols, COLS), groups)
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, step_dy, step_x)
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
