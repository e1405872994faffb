# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | gradients_kernel, `for_weight += g * n`: g is dy * weight, so each element of dweight has its weight as an extra factor and is wrong in every case whose weight is not 1 (dx and dbias are right). It should be `for_weight += dy * n`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator.

One kernel finds four numbers for each row. With these, dx is a matter of single elements, so a second kernel computes it
tile by tile, and adds up the gradients of weight and bias on the way.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS = 16  # of a tile
TILES = [
    triton.Config({"COLS": 64}, num_warps=4),
    triton.Config({"COLS": 128}, num_warps=4),
    triton.Config({"COLS": 128}, num_warps=8),
]


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_numbers_kernel(
    dy_ptr, x_ptr, weight_ptr, numbers_ptr, stride_dy, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """mean, rstd, mean(g) and mean(g * n) of row i go to row i of numbers, (n_rows, 4) fp32; g = dy * weight."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x

    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))

    numbers = numbers_ptr + row * 4
    tl.store(numbers, mean)
    tl.store(numbers + 1, rstd)
    tl.store(numbers + 2, sum_g / N_COLS)
    tl.store(numbers + 3, rstd * sum_gd / N_COLS)


@triton.autotune(configs=TILES, key=["n_cols"])
@triton.jit
def gradients_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    numbers_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """dx of COLS columns of a group of rows, and the group's share of the gradients of weight and bias.

    The rows are dealt out to the groups ROWS at a time. The share of group k goes to row k of the two matrices in
    sums, (2, groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    weight = load(weight_ptr, cols, n_cols)

    for_weight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for_bias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        there = rows < n_rows
        inside = there & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        numbers = numbers_ptr + rows * 4
        mean = tl.load(numbers, mask=there, other=0.0)
        rstd = tl.load(numbers + 1, mask=there, other=0.0)
        mean_g = tl.load(numbers + 2, mask=there, other=0.0)
        mean_gn = tl.load(numbers + 3, mask=there, other=0.0)
        g = dy * weight
        n = (x - mean) * rstd
        dx = rstd * (g - mean_g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        for_weight += g * n
        for_bias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(for_weight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(for_bias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    numbers = x.new_empty((n_rows, 4), dtype=torch.float32)
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    on(row_numbers_kernel, x)[(n_rows,)](
        dy, x, weight, numbers, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(gradients_kernel, x)[lambda meta: (triton.cdiv(n_cols, meta["COLS"]), groups)](
        dy,
        x,
        weight,
        numbers,
        dx,
        sums,
        n_rows,
        n_cols,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        ROWS=ROWS,
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
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
