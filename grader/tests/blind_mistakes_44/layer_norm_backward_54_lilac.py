# labs/lab4_production_slice/layer_norm_backward.py | corner | `column_kernel`, function `layer_norm_backward`: in `rows * stride_dy + cols` and `rows * stride_x + cols`, `rows` is int32, so the offset wraps beyond 2^31 elements; it should be `rows.to(tl.int64)`. dweight and dbias are wrong (or the load is out of bounds) where dy or x has rows that begin beyond 2^31 elements; dx is right, as `row_kernel` has int64.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op, mean_and_rstd
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
HEIGHT, WIDTH = tl.constexpr(16), tl.constexpr(128)  # a tile of the kernel by columns


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    dx_ptr,
    dy_ptr,
    x_ptr,
    weight_ptr,
    means_ptr,
    stride_dx,
    stride_dy,
    stride_x,
    n_rows,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of row i by program i; mean and rstd go to element i of the two rows of means, (2, n_rows) fp32."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, dy_row, dx_row = x_ptr + row * stride_x, dy_ptr + row * stride_dy, dx_ptr + row * stride_dx
    mean, rstd = mean_and_rstd(x_row, eps, N_COLS, BLOCK)
    tl.store(means_ptr + row, mean)
    tl.store(means_ptr + n_rows + row, rstd)
    # Past the end g is 0, and so is what n adds there.
    sum_g, sum_gn = 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_g += tl.sum(g, axis=0)
        sum_gn += tl.sum(g * n, axis=0)
    mean_g, mean_gn = sum_g / N_COLS, sum_gn / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - mean_g - n * mean_gn) * rstd)


@triton.jit
def column_kernel(dy_ptr, x_ptr, means_ptr, sums_ptr, stride_dy, stride_x, n_rows, n_cols):
    """Sums of dy * n and of dy over every groups-th tile of rows; program (i, k) has WIDTH columns of group k.

    The sums of group k go to row k of the two matrices in sums, (2, groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)[None, :]
    of_weight = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    of_bias = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for first in range(group * HEIGHT, n_rows, groups * HEIGHT):
        rows = first + tl.arange(0, HEIGHT)[:, None]
        exists = rows < n_rows
        inside = exists & (cols < n_cols)
        mean = tl.load(means_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(means_ptr + n_rows + rows, mask=exists, other=0.0)
        dy = tl.load(dy_ptr + (rows * stride_dy + cols), mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + (rows * stride_x + cols), mask=inside, other=0.0).to(tl.float32)
        of_weight += dy * ((x - mean) * rstd)
        of_bias += dy
    columns = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    store(sums_ptr + group * n_cols, columns, n_cols, tl.sum(of_weight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, columns, n_cols, tl.sum(of_bias, axis=0))


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
    groups = min(GROUPS, triton.cdiv(n_rows, HEIGHT))
    means = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    by_rows = on(row_kernel, x)[(n_rows,)]
    by_rows(
        dx, dy, x, weight, means, dx.stride(0), dy.stride(0), x.stride(0), n_rows, eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    by_columns = on(column_kernel, x)[(triton.cdiv(n_cols, WIDTH), groups)]
    by_columns(dy, x, means, sums, dy.stride(0), x.stride(0), n_rows, n_cols)
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
