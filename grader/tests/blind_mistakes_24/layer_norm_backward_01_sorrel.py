# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | dx_kernel stores mean and rstd of row i side by side, at 2 * i and 2 * i + 1 of moments, but weight_gradient_kernel loads them from moments_ptr + rows and moments_ptr + n_rows + rows, so dweight is wrong for every n_rows > 1 (dx and dbias are right); it should load 2 * rows and 2 * rows + 1.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)  # tile of weight_gradient_kernel


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    moments_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of one row. Every lane has sums of its own, which are joined once behind the loops."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    lane_x = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        lane_x += load(x_row, start + lane, N_COLS)
    mean = tl.sum(lane_x, axis=0) / N_COLS

    lane_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    lane_g = tl.zeros((BLOCK,), dtype=tl.float32)
    lane_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        lane_dd += d * d
        lane_g += g
        lane_gd += g * d

    rstd = tl.rsqrt(tl.sum(lane_dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(lane_g, axis=0) / N_COLS
    mean_gn = tl.sum(lane_gd, axis=0) * rstd / N_COLS

    # both statistics of the row, for the other kernel
    tl.store(moments_ptr + 2 * row, mean)
    tl.store(moments_ptr + 2 * row + 1, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, moments_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k): the columns of tile i, summed over the rows of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        exists = rows < n_rows
        inside = exists & (cols[None, :] < n_cols)
        far = rows.to(tl.int64)
        dy = tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + far * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(moments_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(moments_ptr + n_rows + rows, mask=exists, other=0.0)
        dweight += dy * ((x - mean) * rstd)
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
    groups = min(GROUPS, triton.cdiv(n_rows, 32))
    moments = torch.empty((n_rows, 2), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, moments, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 64), groups)](
        dy, x, moments, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
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
