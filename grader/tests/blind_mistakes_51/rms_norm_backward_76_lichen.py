# labs/lab4_production_slice/rms_norm_backward.py | error | In `dx_kernel` the line `exists = rows < n_rows.to(tl.int64)`: an integer argument that is 1 is a constexpr, which has no `.to`, so the kernel does not compile for a matrix of one row (1 x 24576, 1 x 16385), and is right for more rows. It should be `rows < n_rows`, as rows are int64 already.
"""The gradients of RMSNorm in tiles of several rows, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads
TILE = 2048  # elements of the tile that a program of dx_kernel loads


@triton.jit
def tile_of(pointer, rows, cols, stride, inside):
    """Return a tile of a matrix in fp32, and 0 where it has no such element."""
    return tl.load(pointer + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
    HEIGHT: tl.constexpr,
):
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i has HEIGHT rows.

    n is the normalised row, x * rstd. rstd of row i goes to element i of an fp32 vector.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    exists = rows < n_rows.to(tl.int64)
    squares = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    products = tl.zeros((HEIGHT, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists & (cols < N_COLS)
        x = tile_of(x_ptr, rows, cols, stride_x, inside)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        squares += x * x
        products += tile_of(dy_ptr, rows, cols, stride_dy, inside) * weight * x
    mean_square = tl.sum(squares, axis=1, keep_dims=True) / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + rows, rstd, mask=exists)
    mean_gn = tl.sum(products, axis=1, keep_dims=True) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        inside = exists & (cols < N_COLS)
        n = tile_of(x_ptr, rows, cols, stride_x, inside) * rstd
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        g = tile_of(dy_ptr, rows, cols, stride_dy, inside) * weight
        dx = rstd * (g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = tile_of(dy_ptr, rows, cols[None, :], stride_dy, inside)
        x = tile_of(x_ptr, rows, cols[None, :], stride_x, inside)
        dweight += dy * (x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0))
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    block = min(block_of(n_cols), TILE)
    height = min(TILE // block, 32)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    on(dx_kernel, x)[(triton.cdiv(n_rows, height),)](
        dy, x, weight, dx, rstd, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block, HEIGHT=height
    )
    grid = (triton.cdiv(n_cols, COLS), sums.shape[0])
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
