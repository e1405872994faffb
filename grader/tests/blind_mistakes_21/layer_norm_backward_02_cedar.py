# labs/lab4_production_slice/layer_norm_backward.py | corner | weight_gradient_kernel: the mask `rows < n_rows` does not stop at the end of the group (should be `rows < last`): where cdiv(n_rows, groups) is no multiple of 16, the last tile of a group reaches into the next group, whose first rows are counted twice in dweight and dbias. Right for up to 16 rows, or where it is a multiple.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lane = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + lane, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    # three sums at once, for each lane, joined behind the loop
    acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        acc_dd += d * d
        acc_g += g
        acc_gd += g * d
    squares = tl.sum(acc_dd, axis=0)
    sum_g = tl.sum(acc_g, axis=0)
    sum_gd = tl.sum(acc_gd, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    sum_gn = sum_gd * rstd
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - (sum_g + n * sum_gn) / N_COLS))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k.

    A group is a run of neighbouring rows, all groups of one size but the last ones.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    size = tl.cdiv(n_rows, groups)
    begin = group * size
    last = tl.minimum(begin + size, n_rows)

    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(begin, last, ROWS):
        rows = (first + tl.arange(0, ROWS))[:, None].to(tl.int64)
        alive = rows < n_rows
        inside = alive & (cols < n_cols)
        mean = tl.load(mean_ptr + rows, mask=alive, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=alive, other=0.0)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dbias += dy
        dweight += dy * (x - mean) * rstd
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean = x.new_empty((n_rows,), dtype=torch.float32)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    by_row = on(dx_kernel, x)[(n_rows,)]
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    by_row(dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    by_column = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    by_column(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
