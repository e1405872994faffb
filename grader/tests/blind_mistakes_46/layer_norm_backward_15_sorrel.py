# labs/lab4_production_slice/layer_norm_backward.py | error | In `join_kernel`, `tl.arange(0, GROUPS)` with `GROUPS=groups`, where groups is min(32, cdiv(n_rows, 16)): it does not compile ("arange's range must be a power of 2") where that is no power of two, as for 37 rows (3 groups), 300 or 301 rows (19). It needs the next power of two and a mask. Right for up to 32 rows and for more than 496.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, on, store
from torch.library import triton_op

MOST_GROUPS = 32


@triton.jit
def tile(ptr, rows, cols, stride, n_rows, n_cols):
    """Return a tile of a matrix in fp32, and 0 where there is no such row or column."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of ROWS rows, BLOCK columns at a time, and mean and rstd of these rows."""
    ids = tl.program_id(axis=0) * ROWS + tl.arange(0, ROWS)
    rows = ids.to(tl.int64)[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(tile(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS), axis=1)
    mean = total / N_COLS

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    sum_g = tl.zeros((ROWS,), dtype=tl.float32)
    sum_gd = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tile(x_ptr, rows, cols, stride_x, n_rows, N_COLS)
        d = tl.where(cols < N_COLS, x - mean[:, None], 0.0)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        g = tile(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS) * weight
        squares += tl.sum(d * d, axis=1)
        sum_g += tl.sum(g, axis=1)
        sum_gd += tl.sum(g * d, axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + ids, mean, mask=ids < n_rows)
    tl.store(rstd_ptr + ids, rstd, mask=ids < n_rows)

    mean_g = (sum_g / N_COLS)[:, None]
    mean_gn = (sum_gd * rstd / N_COLS)[:, None]
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (tile(x_ptr, rows, cols, stride_x, n_rows, N_COLS) - mean[:, None]) * rstd[:, None]
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        g = tile(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS) * weight
        dx = rstd[:, None] * (g - mean_g - n * mean_gn)
        inside = (rows < n_rows) & (cols < N_COLS)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def group_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over a group of rows of dy * n and of dy, to its rows of sums[0] and sums[1]."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        dy = tile(dy_ptr, rows, cols[None, :], stride_dy, n_rows, n_cols)
        x = tile(x_ptr, rows, cols[None, :], stride_x, n_rows, n_cols)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def join_kernel(sums_ptr, dweight_ptr, dbias_ptr, n_cols, GROUPS: tl.constexpr, COLS: tl.constexpr):
    """Add up the groups: a program loads COLS columns of all of them at once."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    places = tl.arange(0, GROUPS)[:, None] * n_cols + cols[None, :]
    inside = (cols < n_cols)[None, :]
    dweight = tl.load(sums_ptr + places, mask=inside, other=0.0)
    dbias = tl.load(sums_ptr + GROUPS * n_cols + places, mask=inside, other=0.0)
    store(dweight_ptr, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    groups = min(MOST_GROUPS, triton.cdiv(n_rows, 16))
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    block = block_of(n_cols)
    rows = max(1, min(16, 2048 // block))  # short rows share a program
    on(dx_kernel, x)[(triton.cdiv(n_rows, rows),)](
        dy, x, weight, dx, mean, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, ROWS=rows, BLOCK=block,
    )  # fmt: skip
    on(group_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=16, COLS=128
    )
    on(join_kernel, x)[(triton.cdiv(n_cols, 64),)](sums, dweight, dbias, n_cols, GROUPS=groups, COLS=64)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
