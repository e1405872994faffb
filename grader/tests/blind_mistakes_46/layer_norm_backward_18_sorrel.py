# labs/lab4_production_slice/layer_norm_backward.py | corner | In `dx_kernel`, `sum_gd += block_gd + block_g * (apart - moved) - sum_g * moved` wants the sum_g of the earlier blocks, but `sum_g += block_g` stands before it: `block_g * moved` is subtracted too much. dx is wrong for rows of more than one block (n_cols > 4096), clearest in fp32; dweight and dbias are right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, column_sums, load, on, store
from torch.library import triton_op

# A block of this width leaves room in the registers for x, g and their sums, with any number of warps.
WIDTH = 4096
GROUPS = 32


@triton.jit
def block_sums(x_row, dy_row, weight_ptr, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return of a block: its columns, its mean, and the sums of d * d, g and g * d, d = x - that mean."""
    cols = start + tl.arange(0, BLOCK)
    columns = tl.minimum(N_COLS - start, BLOCK).to(tl.float32)
    x = load(x_row, cols, N_COLS)
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    mean = tl.sum(x, axis=0) / columns
    d = tl.where(cols < N_COLS, x - mean, 0.0)
    return columns, mean, tl.sum(d * d, axis=0), tl.sum(g, axis=0), tl.sum(g * d, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    stats_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - mean(g) - n * mean(g * n)); program i has row i.

    One sweep finds all sums: those of a block are taken around the mean of the block, and are then moved to
    the mean of the row as far as it is known. stats, (2, n_rows), gets mean and rstd.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    seen, mean, squares, sum_g, sum_gd = block_sums(x_row, dy_row, weight_ptr, 0, N_COLS, BLOCK)
    for start in range(BLOCK, N_COLS, BLOCK):
        here, block_mean, block_squares, block_g, block_gd = block_sums(
            x_row, dy_row, weight_ptr, start, N_COLS, BLOCK
        )
        both = seen + here
        apart = block_mean - mean
        moved = apart * here / both
        mean += moved
        squares += block_squares + apart * moved * seen
        sum_g += block_g
        # What was summed around the two means is now around the new one, which lies between them.
        sum_gd += block_gd + block_g * (apart - moved) - sum_g * moved
        seen = both

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(stats_ptr + row, mean)
    tl.store(stats_ptr + n_rows + row, rstd)
    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Sums over a group of rows of dy * n and of dy, for COLS columns."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(stats_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(stats_ptr + n_rows + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    flat = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    store(sums_ptr + group * n_cols, flat, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, flat, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    stats = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    block = min(WIDTH, triton.next_power_of_2(n_cols))
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, stats, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    grid = (triton.cdiv(n_cols, 128), groups)
    on(weight_gradient_kernel, x)[grid](
        dy, x, stats, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=16, COLS=128
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
