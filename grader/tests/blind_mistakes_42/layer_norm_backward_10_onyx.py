# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | In `row_kernel`, `slope = rstd * rstd * (tl.sum(lane_gd, axis=0) / N_COLS)` has rstd squared, and must have it cubed (`rstd * rstd * rstd * ...`): one rstd for mean(g * n), one for n, one in front. dx is wrong in all cases but rows of one column; dweight and dbias are right.
"""The gradients of LayerNorm: a sweep over rows for x, a sweep over columns for weight and bias."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, column_sums, load, on, store
from torch.library import triton_op

WIDTH = 4096  # columns that a program of row_kernel has in flight
SPLITS = 32  # of the rows at most, each with sums of its own
TALL, WIDE = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS[1:], key=["N_COLS"])
@triton.jit
def row_kernel(
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
    """dx of row i; its mean and 1 / deviation are kept for column_kernel.

    Every lane has sums of its own, which are joined once behind each loop. With d = x - mean the gradient is
    linear in d: dx = rstd * (g - mean(g)) - slope * d, where g = dy * weight.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)

    lane_x = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lane_x += load(x_row, start + lanes, N_COLS)
    mean = tl.sum(lane_x, axis=0) / N_COLS

    lane_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    lane_g = tl.zeros((BLOCK,), dtype=tl.float32)
    lane_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        lane_dd += d * d
        lane_g += g
        lane_gd += g * d
    variance = tl.sum(lane_dd, axis=0) / N_COLS
    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    mean_g = tl.sum(lane_g, axis=0) / N_COLS
    slope = rstd * rstd * (tl.sum(lane_gd, axis=0) / N_COLS)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    dx_row = dx_ptr + row * stride_dx
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = load(x_row, cols, N_COLS) - mean
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g) - slope * d)


@triton.jit
def column_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n and of dy for WIDE columns; program (i, k) has every splits-th tile of rows, from k on."""
    split = tl.program_id(axis=1)
    splits = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    for_weight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for_bias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(split * TALL, n_rows, splits * TALL):
        rows = start + tl.arange(0, TALL)
        exists = rows < n_rows
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)[:, None]
        at = rows.to(tl.int64)[:, None]
        inside = exists[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + at * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        for_weight += dy * ((x - mean) * rstd)
        for_bias += dy
    store(sums_ptr + split * n_cols, cols, n_cols, tl.sum(for_weight, axis=0))
    store(sums_ptr + (splits + split) * n_cols, cols, n_cols, tl.sum(for_bias, axis=0))


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
    splits = min(SPLITS, triton.cdiv(n_rows, TALL))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, splits, n_cols), device=x.device, dtype=torch.float32)

    block = min(WIDTH, triton.next_power_of_2(n_cols))
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    on(row_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block)
    grid = (triton.cdiv(n_cols, WIDE), splits)
    on(column_kernel, x)[grid](dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
