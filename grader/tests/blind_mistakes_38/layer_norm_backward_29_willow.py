# labs/lab4_production_slice/layer_norm_backward.py | error | weight_gradient_kernel, `dy * (x - mean) * rstd`: mean and rstd are loaded at the one-dimensional `rows` and have shape (ROWS,), which broadcasts along the last axis of the (ROWS, COLS) tile x, that is 16 against 128; the kernel does not compile (nor run in the interpreter) in any case of layer_norm_backward, nor of layer_norm where gradients are asked for. It should be mean[:, None] and rstd[:, None].
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def difference(x_row, mean, cols, n_cols):
    """x - mean within the row, and 0 past its end."""
    return tl.where(cols < n_cols, load(x_row, cols, n_cols) - mean, 0.0)


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
    """dx of one row, in three sweeps: the mean, the sums around it, the result."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    offs = tl.arange(0, BLOCK)

    mean = 0.0
    for col in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, col + offs, N_COLS), axis=0) / N_COLS

    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for col in range(0, N_COLS, BLOCK):
        d = difference(x_row, mean, col + offs, N_COLS)
        g = load(dy_row, col + offs, N_COLS) * load(weight_ptr, col + offs, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = sum_g / N_COLS
    mean_gn = rstd * sum_gd / N_COLS
    for col in range(0, N_COLS, BLOCK):
        n = difference(x_row, mean, col + offs, N_COLS) * rstd
        g = load(dy_row, col + offs, N_COLS) * load(weight_ptr, col + offs, N_COLS)
        store(dx_ptr + row * stride_dx, col + offs, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n and of dy; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)

    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = load(mean_ptr, rows, n_rows)
        rstd = load(rstd_ptr, rows, n_rows)
        dweight += dy * (x - mean) * rstd
        dbias += dy

    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    sizes = {"N_COLS": n_cols, "BLOCK": block_of(n_cols)}
    steps = [tensor.stride(0) for tensor in (dy, x, dx)]
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, *steps, eps, **sizes)

    grid = (triton.cdiv(n_cols, COLS), groups)
    on(weight_gradient_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, *steps[:2])
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
