# labs/lab4_production_slice/layer_norm_backward.py | right | a program of the column kernel walks from the last row up to the first, sums are stored one after the other in one buffer of (groups, 2, n_cols) and reduced by a kernel of its own instead of column_sums; dx by block pointers
"""The gradients of LayerNorm: dx with block pointers, dweight and dbias by a kernel that ends in the results."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, on
from torch.library import triton_op


@triton.jit
def ahead(base, start, N: tl.constexpr, BLOCK: tl.constexpr):
    """A block pointer to BLOCK of N neighbouring numbers, from start on."""
    return tl.make_block_ptr(base, (N,), (1,), (start,), (BLOCK,), (0,))


@triton.jit
def take(base, start, N: tl.constexpr, BLOCK: tl.constexpr):
    """A block in fp32, 0 past the end."""
    return tl.load(ahead(base, start, N, BLOCK), boundary_check=(0,), padding_option="zero").to(tl.float32)


@triton.autotune(configs=WARPS, key=["N"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, w_ptr, dx_ptr, stats_ptr, stride_dy, stride_x, stride_dx, eps, N: tl.constexpr, BLOCK: tl.constexpr
):
    """Row i: mean and rstd side by side to stats, then dx."""
    row = tl.program_id(0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    w_row = w_ptr

    mean = 0.0
    for start in range(0, N, BLOCK):
        mean += tl.sum(take(x_row, start, N, BLOCK), axis=0)
    mean = mean / N

    dd = 0.0
    g_total = 0.0
    gd_total = 0.0
    for start in range(0, N, BLOCK):
        x = take(x_row, start, N, BLOCK)
        g = take(dy_row, start, N, BLOCK) * take(w_row, start, N, BLOCK)
        d = tl.where(start + tl.arange(0, BLOCK) < N, x - mean, 0.0)
        dd += tl.sum(d * d, axis=0)
        g_total += tl.sum(g, axis=0)
        gd_total += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(dd / N + tl.cast(eps, tl.float32))
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)

    for start in range(0, N, BLOCK):
        n = (take(x_row, start, N, BLOCK) - mean) * rstd
        g = take(dy_row, start, N, BLOCK) * take(w_row, start, N, BLOCK)
        dx = rstd * (g - (g_total + n * (rstd * gd_total)) / N)
        tl.store(ahead(dx_row, start, N, BLOCK), dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))


@triton.jit
def group_kernel(
    dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, per_group, stride_dy, stride_x, ROWS: tl.constexpr, COLS: tl.constexpr
):
    """Group k has rows k * per_group to (k + 1) * per_group - 1, a multiple of ROWS, taken from the end."""
    group = tl.program_id(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    first = group * per_group
    steps = per_group // ROWS
    dw = tl.zeros((ROWS, COLS), dtype=tl.float32)
    db = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for i in range(steps):
        rows = (first + (steps - 1 - i) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        row_ok = rows < n_rows
        ok = row_ok[:, None] & (cols < n_cols)[None, :]
        mean = tl.load(stats_ptr + 2 * rows, mask=row_ok, other=0.0)
        rstd = tl.load(stats_ptr + 2 * rows + 1, mask=row_ok, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=ok, other=0.0).to(tl.float32)
        dw += dy * (x - mean[:, None]) * rstd[:, None]
        db += dy
    here = sums_ptr + group * 2 * n_cols + cols
    tl.store(here, tl.sum(dw, axis=0), mask=cols < n_cols)
    tl.store(here + n_cols, tl.sum(db, axis=0), mask=cols < n_cols)


@triton.jit
def join_kernel(sums_ptr, dweight_ptr, dbias_ptr, groups, n_cols, COLS: tl.constexpr):
    """Both gradients of COLS columns: the groups in ascending order."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    ok = cols < n_cols
    dw = tl.zeros((COLS,), dtype=tl.float32)
    db = tl.zeros((COLS,), dtype=tl.float32)
    for group in range(groups):
        here = sums_ptr + group * 2 * n_cols + cols
        dw += tl.load(here, mask=ok, other=0.0)
        db += tl.load(here + n_cols, mask=ok, other=0.0)
    tl.store(dweight_ptr + cols, dw.to(dweight_ptr.dtype.element_ty), mask=ok)
    tl.store(dbias_ptr + cols, db.to(dbias_ptr.dtype.element_ty), mask=ok)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight, dbias."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    rows, cols = 16, 64
    # about 48 groups, each a whole number of tiles
    per_group = triton.cdiv(triton.cdiv(n_rows, rows), 48) * rows
    groups = triton.cdiv(n_rows, per_group)
    strips = triton.cdiv(n_cols, cols)
    stats = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, 2, n_cols), device=x.device, dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, stats, dy.stride(0), x.stride(0), dx.stride(0), eps, N=n_cols, BLOCK=block_of(n_cols)
    )
    on(group_kernel, x)[(groups, strips)](
        dy, x, stats, sums, n_rows, n_cols, per_group, dy.stride(0), x.stride(0), ROWS=rows, COLS=cols
    )
    on(join_kernel, x)[(strips,)](sums, dweight, dbias, groups, n_cols, COLS=cols)
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
