# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | weight_gradient_kernel adds up g * n with g = dy * weight (`g = load_tile(dy...) * w`), so dweight has the weight as an extra factor in every column; it should add up dy * n without the weight. dx is right.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def sums_of_row(dy_row, x_row, weight_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The sums of x * x and of g * x over one row; lanes are added first and reduced once at the end."""
    lane = tl.arange(0, BLOCK)
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, N_COLS, BLOCK):
        at = first + lane
        x = load(x_row, at, N_COLS)
        g = load(dy_row, at, N_COLS) * load(weight_ptr, at, N_COLS)
        xx += x * x
        gx += g * x
    return tl.sum(xx, axis=0), tl.sum(gx, axis=0)


@triton.jit
def load_tile(ptr, rows, cols, stride, inside):
    """A tile of a matrix as fp32, 0 outside."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - n * mean(g * n)) of row i, and rstd of that row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    squares, sum_gx = sums_of_row(dy_row, x_row, weight_ptr, N_COLS, BLOCK)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = sum_gx * rstd / N_COLS
    for first in range(0, N_COLS, BLOCK):
        at = first + tl.arange(0, BLOCK)
        n = load(x_row, at, N_COLS) * rstd
        g = load(dy_row, at, N_COLS) * load(weight_ptr, at, N_COLS)
        store(dx_row, at, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """One group of rows and COLS columns: the sums that reach the weight, in fp32."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    w = load(weight_ptr, cols, n_cols)[None, :]
    tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for top in range(group * ROWS, n_rows, groups * ROWS):
        rows = (top + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        g = load_tile(dy_ptr, rows, cols, stride_dy, inside) * w
        n = load_tile(x_ptr, rows, cols, stride_x, inside) * rstd
        tile += g * n
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(tile, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd,
        dy.stride(0), x.stride(0), dx.stride(0),
        eps, N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, weight, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
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
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
