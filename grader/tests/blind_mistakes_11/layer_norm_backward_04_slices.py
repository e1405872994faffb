# labs/lab4_production_slice/layer_norm_backward.py | corner | a group is a slice of `per_group` neighbouring rows, taken ROWS at a time, but the mask of a tile is `rows < n_rows`; it must be rows < last, the end of the slice. The last tile of a slice reaches into the next one, whose rows are added twice. Shows in dweight and dbias where there are several groups and per_group = cdiv(n_rows, groups) is no multiple of 16 (40 rows: slices of 14).
"""The gradients of LayerNorm; the rows are cut into slices for dweight and dbias."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS = 16
COLS = 128


@triton.jit
def sums_of_row(dy_row, x_row, weight_ptr, mean, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of d * d, g and g * d over a row."""
    dd = 0.0
    g_sum = 0.0
    gd_sum = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dd += tl.sum(d * d, axis=0)
        g_sum += tl.sum(g, axis=0)
        gd_sum += tl.sum(g * d, axis=0)
    return dd, g_sum, gd_sum


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
    """dx of row i; its mean and rstd are stored for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = total / N_COLS
    squares, sum_g, sum_gd = sums_of_row(dy_row, x_row, weight_ptr, mean, N_COLS, BLOCK)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        dx = rstd * (g - (sum_g + n * (rstd * sum_gd)) / N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, dx)


@triton.jit
def slice_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    per_group,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Group k has the rows from k * per_group up to (k + 1) * per_group."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * per_group
    last = tl.minimum(first + per_group, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """dx, dweight, dbias."""
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
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
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    per_group = triton.cdiv(n_rows, groups)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(slice_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, per_group, dy.stride(0), x.stride(0), ROWS=ROWS, COLS=COLS
    )
    for terms, result in ((sums[0], dweight), (sums[1], dbias)):
        column_sums(terms, result)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For torch.compile."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return the gradients."""
        x, weight = ctx.saved_tensors
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable LayerNorm."""
    return LayerNorm.apply(x, weight, bias, eps)
