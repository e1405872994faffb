# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | Exercises rms_norm_backward and rms_norm. (1) `dx_row = dx_ptr + row * stride_x` in `dx_kernel` should be `row * stride_dx`: shows in dx where dx has another row stride than x and more than one row (padded or far x or dx, a new dx for a padded x; it also writes outside of dx). (2) `share = n_rows // groups` in `rms_norm_backward` should be `triton.cdiv(n_rows, groups)`: dweight lacks the last rows where n_rows is no multiple of groups = min(32, ceil(n_rows / 16)), such as 29, 37, 301, 600 or 1000 rows.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
WIDEST_BLOCK = 4096


@triton.jit
def scaled_gradient(dy_row, weight_ptr, cols, n_cols):
    """g = dy * weight at these columns of a row, in fp32."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


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
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight; program i computes row i.

    n is the normalised row, x * rstd. rstd of row i goes to element i of an fp32 vector.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_x

    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        xx += x * x
        gx += x * scaled_gradient(dy_row, weight_ptr, cols, N_COLS)
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = tl.sum(gx, axis=0) * rstd / N_COLS
    tl.store(rstd_ptr + row, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = load(x_row, cols, N_COLS) * rstd
        g = scaled_gradient(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    share,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums of dy * n over a group of rows; program (i, k) adds COLS columns of group k.

    A group has `share` rows, one behind the other, and its sums go to row k of sums, (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    first = group * share
    last = tl.minimum(first + share, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < last) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < last, other=0.0)
        dweight += dy * (x * rstd)
    columns = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    store(sums_ptr + group.to(tl.int64) * n_cols, columns, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    block = min(block_of(n_cols), WIDEST_BLOCK)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )

    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    share = n_rows // groups
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)]
    launch(dy, x, rstd, sums, n_rows, n_cols, share, dy.stride(0), x.stride(0), ROWS=16, COLS=128)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
