# labs/lab4_production_slice/layer_norm_backward.py | error | dx_kernel does not compile for rows of one block (n_cols up to 16384): under `if N_COLS <= BLOCK` it uses cols, g and d behind the loop in which they are first assigned, and Triton drops such names at the end of a loop (NameError: cols is not defined). Longer rows take the other branch and compile; in the interpreter, which is plain Python, all is right. In layer_norm_backward and layer_norm. It should load them again behind the loop, or assign them before it.
"""LayerNorm backward, and the differentiable norm."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


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
    """dx = rstd * (g - mean(g) - n * mean(g * n)), where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    sum_x = 0.0
    for begin in range(0, N_COLS, BLOCK):
        sum_x += tl.sum(load(x_row, begin + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = sum_x / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for begin in range(0, N_COLS, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = sum_g / N_COLS
    slope = sum_gd * rstd / N_COLS * rstd  # n * mean(g * n) is d * slope
    if N_COLS <= BLOCK:
        # One block: the row is still in registers.
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - d * slope))
    else:
        for begin in range(0, N_COLS, BLOCK):
            cols = begin + tl.arange(0, BLOCK)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            d = load(x_row, cols, N_COLS) - mean
            store(dx_row, cols, N_COLS, rstd * (g - mean_g - d * slope))


@triton.jit
def tile_of(ptr, rows, stride, cols, inside):
    """A tile in fp32, 0 outside of the matrix."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for begin in range(group * ROWS, n_rows, groups * ROWS):
        rows = begin + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tile_of(dy_ptr, rows, stride_dy, cols, inside)
        x = tile_of(x_ptr, rows, stride_x, cols, inside)
        mean = load(mean_ptr, rows, n_rows)
        rstd = load(rstd_ptr, rows, n_rows)
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )
    grid = (triton.cdiv(n_cols, COLS), sums.shape[1])
    on(weight_gradient_kernel, x)[grid](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    for terms, result in ((sums[0], dweight), (sums[1], dbias)):
        column_sums(terms, result)
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
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
