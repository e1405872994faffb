# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In `dx_kernel`, third loop: `dx = rstd[:, None] * (dy * weight - mean_g[:, None] - d * mean_gn[:, None])` takes `d = x - mean` where n is needed; it should be `d * rstd[:, None] * mean_gn[:, None]`. dx is wrong wherever rstd is not 1 (nearly all cases, but for one column); dweight and dbias are right.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import column_sums, on
from torch.library import triton_op

WIDTH = 4096  # columns of a tile at most
LANES = 2048  # short rows share a program, until their tile has so many elements
SLICES = 64  # of rows at most, each with its own sums
HIGH, WIDE = tl.constexpr(16), tl.constexpr(128)  # the tile of the sums over rows
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.jit
def tile_of(ptr, rows, cols, stride, n_rows, n_cols):
    """Elements of a matrix at a column of row numbers and a row of column numbers, fp32, 0 outside."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
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
    """dx of ROWS rows, BLOCK columns at a time; mean and rstd of each row go to two fp32 vectors."""
    index = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    rows = index[:, None]
    lanes = tl.arange(0, BLOCK)[None, :]

    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += tl.sum(tile_of(x_ptr, rows, start + lanes, stride_x, n_rows, N_COLS), axis=1)
    mean = total / N_COLS

    squares = tl.zeros((ROWS,), dtype=tl.float32)
    sum_g = tl.zeros((ROWS,), dtype=tl.float32)
    sum_gd = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tile_of(x_ptr, rows, cols, stride_x, n_rows, N_COLS)
        dy = tile_of(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        d = tl.where(cols < N_COLS, x - mean[:, None], 0.0)
        g = dy * weight
        squares += tl.sum(d * d, axis=1)
        sum_g += tl.sum(g, axis=1)
        sum_gd += tl.sum(g * d, axis=1)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + index, mean, mask=index < n_rows)
    tl.store(rstd_ptr + index, rstd, mask=index < n_rows)

    mean_g = sum_g / N_COLS
    mean_gn = rstd * sum_gd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = tile_of(x_ptr, rows, cols, stride_x, n_rows, N_COLS)
        dy = tile_of(dy_ptr, rows, cols, stride_dy, n_rows, N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        d = x - mean[:, None]
        dx = rstd[:, None] * (dy * weight - mean_g[:, None] - d * mean_gn[:, None])
        inside = (rows < n_rows) & (cols < N_COLS)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def slices_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, of_n_ptr, of_dy_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and of dy over a slice of the rows; program (i, k) has WIDE columns of slice k."""
    slice_index = tl.program_id(axis=1)
    slices = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    with_n = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    plain = tl.zeros((HIGH, WIDE), dtype=tl.float32)
    for start in range(slice_index * HIGH, n_rows, slices * HIGH):
        index = start + tl.arange(0, HIGH)
        rows = index[:, None].to(tl.int64)
        mean = tl.load(mean_ptr + index, mask=index < n_rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + index, mask=index < n_rows, other=0.0)[:, None]
        dy = tile_of(dy_ptr, rows, cols[None, :], stride_dy, n_rows, n_cols)
        x = tile_of(x_ptr, rows, cols[None, :], stride_x, n_rows, n_cols)
        with_n += dy * ((x - mean) * rstd)
        plain += dy
    at = slice_index * n_cols + cols
    tl.store(of_n_ptr + at, tl.sum(with_n, axis=0), mask=cols < n_cols)
    tl.store(of_dy_ptr + at, tl.sum(plain, axis=0), mask=cols < n_cols)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)

    block = min(triton.next_power_of_2(n_cols), WIDTH)
    together = max(1, min(16, LANES // block))
    on(dx_kernel, x)[(triton.cdiv(n_rows, together),)](
        dy, x, weight, dx, mean, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, ROWS=together, BLOCK=block,
    )  # fmt: skip

    slices = min(SLICES, triton.cdiv(n_rows, 16))
    of_n = torch.empty((slices, n_cols), device=x.device, dtype=torch.float32)
    of_dy = torch.empty((slices, n_cols), device=x.device, dtype=torch.float32)
    on(slices_kernel, x)[(triton.cdiv(n_cols, 128), slices)](
        dy, x, mean, rstd, of_n, of_dy, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    column_sums(of_n, dweight)
    column_sums(of_dy, dbias)
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
