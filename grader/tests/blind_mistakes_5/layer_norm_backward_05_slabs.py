# labs/lab4_production_slice/layer_norm_backward.py | honest | Right; groups are contiguous slabs of rows, mean and rstd interleaved in one tensor, four loops in the kernel by rows, other tile sizes.
"""LayerNorm backward; contiguous slabs of rows for each group, and three numbers per row kept for the weights."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_GROUPS = 48
TILE_ROWS, TILE_COLS = 8, 256


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    g_ptr, x_ptr, w_ptr, o_ptr, stat_ptr, g_ld, x_ld, o_ld, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx of one row; stat[row] = (mean, rstd)."""
    row = tl.program_id(0).to(tl.int64)
    g_ptr += row * g_ld
    x_ptr += row * x_ld
    o_ptr += row * o_ld
    lane = tl.arange(0, BLOCK)

    mean = 0.0
    for k in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_ptr, k + lane, N_COLS), 0)
    mean = mean / N_COLS

    var = 0.0
    for k in range(0, N_COLS, BLOCK):
        d = load(x_ptr, k + lane, N_COLS, mean)
        # a lane past the end was loaded as 0 or as the mean: mask it in any case
        d = tl.where(k + lane < N_COLS, d - mean, 0.0)
        var += tl.sum(d * d, 0)
    rstd = tl.rsqrt(var / N_COLS + tl.cast(eps, tl.float32))
    tl.store(stat_ptr + row * 2, mean)
    tl.store(stat_ptr + row * 2 + 1, rstd)

    a = 0.0
    b = 0.0
    for k in range(0, N_COLS, BLOCK):
        g = load(g_ptr, k + lane, N_COLS) * load(w_ptr, k + lane, N_COLS)
        n = (load(x_ptr, k + lane, N_COLS) - mean) * rstd
        a += tl.sum(g, 0)
        b += tl.sum(g * n, 0)
    a = a / N_COLS
    b = b / N_COLS

    for k in range(0, N_COLS, BLOCK):
        g = load(g_ptr, k + lane, N_COLS) * load(w_ptr, k + lane, N_COLS)
        n = (load(x_ptr, k + lane, N_COLS) - mean) * rstd
        store(o_ptr, k + lane, N_COLS, rstd * (g - a - b * n))


@triton.jit
def slab_kernel(
    g_ptr, x_ptr, stat_ptr, sums_ptr, slab, n_rows, n_cols, g_ld, x_ld, R: tl.constexpr, C: tl.constexpr
):
    """Program (i, k): columns i * C ... of the rows k * slab ... (k + 1) * slab - 1."""
    cols = tl.program_id(0) * C + tl.arange(0, C)
    k = tl.program_id(1)
    end = tl.minimum((k + 1) * slab, n_rows)
    acc_w = tl.zeros((R, C), tl.float32)
    acc_b = tl.zeros((R, C), tl.float32)
    for start in range(k * slab, end, R):
        rows = start + tl.arange(0, R)
        live = rows < end
        rows = rows.to(tl.int64)
        m = live[:, None] & (cols < n_cols)[None, :]
        g = tl.load(g_ptr + rows[:, None] * g_ld + cols[None, :], mask=m, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * x_ld + cols[None, :], mask=m, other=0.0).to(tl.float32)
        mean = tl.load(stat_ptr + rows * 2, mask=live, other=0.0)
        rstd = tl.load(stat_ptr + rows * 2 + 1, mask=live, other=0.0)
        acc_b += g
        acc_w += g * (x - mean[:, None]) * rstd[:, None]
    store(sums_ptr + k * n_cols, cols, n_cols, tl.sum(acc_w, 0))
    store(sums_ptr + (tl.num_programs(1) + k) * n_cols, cols, n_cols, tl.sum(acc_b, 0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    n_rows, n_cols = x.shape
    dx = x.new_empty((n_rows, n_cols)) if dx is None else dx
    dweight = weight.new_empty((n_cols,)) if dweight is None else dweight
    dbias = weight.new_empty((n_cols,)) if dbias is None else dbias
    slab = triton.cdiv(triton.cdiv(n_rows, MOST_GROUPS), TILE_ROWS) * TILE_ROWS
    groups = triton.cdiv(n_rows, slab)
    stat = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(row_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        stat,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(slab_kernel, x)[(triton.cdiv(n_cols, TILE_COLS), groups)](
        dy,
        x,
        stat,
        sums,
        slab,
        n_rows,
        n_cols,
        dy.stride(0),
        x.stride(0),
        R=TILE_ROWS,
        C=TILE_COLS,
    )
    for matrix, vector in ((sums[0], dweight), (sums[1], dbias)):
        column_sums(matrix, vector)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        gradients = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return (*gradients, None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
