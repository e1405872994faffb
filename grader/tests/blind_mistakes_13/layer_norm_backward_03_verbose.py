# labs/lab4_production_slice/layer_norm_backward.py | corner | In weight_gradient_kernel a group has the rows from `first` to `last`, but `row_exists = rows < n_rows` masks only the end of the matrix: where rows_per_group is no multiple of 16, the last tile of a group also adds the first rows of the next group, so dweight and dbias count them twice; it should be `rows < tl.minimum(last, n_rows)`.
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
    """One program computes one row of dx, and leaves mean and rstd of the row for the second kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    # First sweep: the mean. Lanes past the end of the row load 0 and add nothing.
    sum_x = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        sum_x += load(x_row, columns, N_COLS)
    mean = tl.sum(sum_x, axis=0) / N_COLS

    # Second sweep: everything else that is a sum over the row. Here a lane past the end would contribute
    # (0 - mean) ** 2 to the squares, so it is set to 0 by hand. g is 0 there because dy is.
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        difference = load(x_row, columns, N_COLS) - mean
        difference = tl.where(columns < N_COLS, difference, 0.0)
        g = load(dy_row, columns, N_COLS) * load(weight_ptr, columns, N_COLS)
        squares += tl.sum(difference * difference, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * difference, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # Third sweep: dx. sum(g * n) is rstd * sum(g * (x - mean)).
    for start in range(0, N_COLS, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        normalised = (load(x_row, columns, N_COLS) - mean) * rstd
        g = load(dy_row, columns, N_COLS) * load(weight_ptr, columns, N_COLS)
        dx = rstd * (g - (sum_g + normalised * (sum_gd * rstd)) / N_COLS)
        store(dx_row, columns, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k.

    Each group is a contiguous piece of the matrix, all of about the same height. Groups behind the last row
    have nothing to add and store zeros.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)

    # The piece of this group: rows from `first` up to `last`.
    rows_per_group = (n_rows + groups - 1) // groups
    first = group * rows_per_group
    last = first + rows_per_group

    # Two tiles of sums. They are reduced to one row each at the very end, outside of the loop.
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        # int64, since row * stride may be beyond 2^31
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        row_exists = rows < n_rows
        exists = row_exists & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=exists, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=exists, other=0.0).to(tl.float32)
        # statistics of the rows, one number each
        mean = tl.load(mean_ptr + rows, mask=row_exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0)
        dweight += dy * (x - mean) * rstd
        dbias += dy

    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)

    # One program for each row.
    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )

    # One program for each block of columns (axis 0) and each group of rows (axis 1).
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[1])](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
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
        # bias is not needed: its gradient is a sum of dy alone
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        # dy may be expanded or transposed
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
