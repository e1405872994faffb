# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) dx_kernel, second loop: `sum_g += tl.sum(upstream, axis=0)` adds dy and not g = dy * weight, so dx has a wrong mean term; it should be `tl.sum(g, axis=0)`. (2) weight_gradient_kernel: `present = rows < n_rows` lets the last tile of a group run on into the rows of the next group, which are then counted twice in dweight and dbias (more than 16 rows, where a group is no multiple of 16 rows); it should be `rows < last`.
"""LayerNorm: gradients and the autograd function."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def row_mean(row_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The mean of a row of N_COLS numbers, in fp32."""
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(row_ptr, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    return total / N_COLS


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
    """dx of one row for each program; mean and rstd of the row are kept for weight_gradient_kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    mean = row_mean(x_row, N_COLS, BLOCK)

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        d = tl.where(cols < N_COLS, x - mean, 0.0)
        upstream = load(dy_row, cols, N_COLS)
        g = upstream * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(upstream, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k.

    A group is a run of neighbouring rows. Its sums go to row k of the two matrices in sums.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)

    size = (n_rows + groups - 1) // groups
    first = group * size
    last = tl.minimum(first + size, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        present = rows < n_rows
        rows = rows.to(tl.int64)
        mask = present[:, None] & (cols < n_cols)[None, :]
        mean = tl.load(mean_ptr + rows, mask=present, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=present, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        n = (x - mean[:, None]) * rstd[:, None]
        dweight += dy * n
        dbias += dy

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
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    for index, result in enumerate((dweight, dbias)):
        column_sums(sums[index], result)
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
