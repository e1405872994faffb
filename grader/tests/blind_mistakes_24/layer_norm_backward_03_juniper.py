# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""LayerNorm's gradients in another split of the work.

The first kernel reduces each row to four numbers: mean, rstd, mean(g) and mean(g * n), with g = dy * weight. With these
every element of dx is known from its own x and dy. So the second kernel goes over tiles, writes dx, and while it has x
and dy at hand, adds up dweight and dbias as well. x and dy are read twice in all, as with a kernel for dx alone.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

TILE_ROWS = 16
TILE_COLS = 128
MOST_GROUPS = 64


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def summary_kernel(
    dy_ptr, x_ptr, weight_ptr, table_ptr, n_rows, stride_dy, stride_x, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """Column i of the table (4, n_rows): mean, rstd, mean(g), mean(g * n) of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy

    running = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        running += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(running, axis=0) / N_COLS

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        centred = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(weight_ptr, cols, N_COLS) * load(dy_row, cols, N_COLS)
        squares += centred * centred
        gs += g
        products += g * centred
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))

    place = table_ptr + row
    tl.store(place, mean)
    place += n_rows
    tl.store(place, rstd)
    place += n_rows
    tl.store(place, tl.sum(gs, axis=0) / N_COLS)
    place += n_rows
    tl.store(place, rstd * tl.sum(products, axis=0) / N_COLS)


@triton.jit
def from_table(table_ptr, which, rows, n_rows):
    """One of the four numbers for each row of a tile, as a column; 0 where there is no such row."""
    long = tl.cast(n_rows, tl.int64)
    return tl.load(table_ptr + which * long + rows, mask=rows < n_rows, other=0.0)


@triton.jit
def tiles_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    table_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Program (i, k) has column tile i of every row tile k, k + groups, k + 2 groups, ..."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    across = cols[None, :]
    weight = load(weight_ptr, cols, n_cols)[None, :]
    for_weight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for_bias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for top in range(group * ROWS, n_rows, groups * ROWS):
        rows = (top + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (across < n_cols)
        x = tl.load(x_ptr + rows * stride_x + across, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + across, mask=inside, other=0.0).to(tl.float32)
        mean = from_table(table_ptr, 0, rows, n_rows)
        rstd = from_table(table_ptr, 1, rows, n_rows)
        mean_g = from_table(table_ptr, 2, rows, n_rows)
        mean_gn = from_table(table_ptr, 3, rows, n_rows)
        n = (x - mean) * rstd
        dx = rstd * (dy * weight - mean_g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + across, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        # dy is 0 outside, whatever n is there
        for_weight += dy * n
        for_bias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(for_weight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(for_bias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(MOST_GROUPS, triton.cdiv(n_rows, TILE_ROWS))
    table = torch.empty((4, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)

    summarise = on(summary_kernel, x)[(n_rows,)]
    summarise(
        dy, x, weight, table, n_rows, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    run_tiles = on(tiles_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)]
    run_tiles(
        dy, x, weight, dx, table, sums, n_rows, n_cols,
        dy.stride(0), x.stride(0), dx.stride(0), ROWS=TILE_ROWS, COLS=TILE_COLS,
    )  # fmt: skip
    for k, result in enumerate((dweight, dbias)):
        column_sums(sums[k], result)
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
        for_x, for_weight, for_bias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return for_x, for_weight, for_bias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
