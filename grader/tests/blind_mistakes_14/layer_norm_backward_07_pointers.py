# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | LayerNorm.forward saves its result with `ctx.save_for_backward(y, weight)` where the gradient needs the input, `ctx.save_for_backward(x, weight)`, so dx and dweight of layer_norm are computed from y and wrong everywhere (layer_norm_backward itself is right).
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


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
    """Each program owns one row. Rows up to BLOCK columns take one turn of each loop."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    # pass 1: mean
    s = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        s += load(x_row, start + lane, N_COLS)
    mean = tl.sum(s, axis=0) / N_COLS

    # pass 2: variance, and what has to be taken out of g
    squares = tl.zeros((BLOCK,), tl.float32)
    sum_g = tl.zeros((BLOCK,), tl.float32)
    sum_gd = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += d * d
        sum_g += g
        sum_gd += g * d
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(sum_g, axis=0) / N_COLS
    mean_gn = tl.sum(sum_gd, axis=0) / N_COLS * rstd
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # pass 3: dx
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_row, cols, N_COLS, (g - mean_g - n * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """A program walks down COLS columns, ROWS rows at a time, and skips the tiles of the other groups."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    row = (group * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    # the pointers move down, the offsets in the tile stay
    dy_tile = dy_ptr + row * stride_dy + cols
    x_tile = x_ptr + row * stride_x + cols
    step = (groups * ROWS).to(tl.int64)

    dweight = tl.zeros((ROWS, COLS), tl.float32)
    dbias = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        inside = (row < n_rows) & (cols < n_cols)
        dy = tl.load(dy_tile, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        dweight += dy * (x - mean) * rstd
        dbias += dy
        row += step
        dy_tile += step * stride_dy
        x_tile += step * stride_x

    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)

    row_strides = (dy.stride(0), x.stride(0), dx.stride(0))
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, *row_strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(y, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        saved, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), saved, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
