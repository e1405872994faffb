# labs/lab4_production_slice/layer_norm_backward.py | corner | rows of a group are n_rows // groups, it must be rounded up (and last cut at n_rows): the last n_rows % groups rows are missing in dweight and dbias; shows for more than 32 rows where the number of groups does not divide n_rows, as for 149 rows
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MAX_GROUPS = 32  # groups of neighbouring rows, each with sums of its own
TILE_ROWS = 32
TILE_COLS = 64


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr,
    mean_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx,
    eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program for each row; mean and rstd are kept for the second kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    # sweep 1: the mean
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS

    # sweep 2: three sums, kept as vectors and reduced only once
    v_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    v_g = tl.zeros((BLOCK,), dtype=tl.float32)
    v_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        v_dd += d * d
        v_g += g
        v_gd += g * d
    rstd = tl.rsqrt(tl.sum(v_dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    c1 = tl.sum(v_g, axis=0) / N_COLS
    c2 = tl.sum(v_gd, axis=0) * rstd / N_COLS

    # sweep 3: dx
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - (c1 + n * c2)))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr,
    n_rows, n_cols, stride_dy, stride_x,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A group is a stretch of neighbouring rows, so the loads of a program walk straight through memory."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    per_group = n_rows // groups
    first = group * per_group
    last = first + per_group

    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        mine = rows < last
        inside = mine & (cols < n_cols)
        where = rows.to(tl.int64)
        dy = tl.load(dy_ptr + where * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + where * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + where, mask=mine, other=0.0)
        rstd = tl.load(rstd_ptr + where, mask=mine, other=0.0)
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
    groups = min(MAX_GROUPS, triton.cdiv(n_rows, TILE_ROWS))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx,
        mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0),
        eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)](
        dy, x, mean, rstd, sums,
        n_rows, n_cols, dy.stride(0), x.stride(0),
        ROWS=TILE_ROWS, COLS=TILE_COLS,
    )  # fmt: skip
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
        dy = dy.contiguous()
        grads = backward_op(dy, x, weight, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
