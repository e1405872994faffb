# labs/lab4_production_slice/rms_norm_backward.py | right | weight_gradient_kernel walks the tiles of its group from the last to the first; dx is multiplied out, rstd * g - n * (rstd * mean_gn); blocks of 8192 columns.
"""RMSNorm backwards, with the formula for dx multiplied out."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def row_sums(x_row, dy_row, weight_ptr, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """The sums of x * x and of dy * weight * x over a row."""
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        xx += x * x
        gx += x * (load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS))
    return tl.sum(xx, axis=0), tl.sum(gx, axis=0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares, sum_gx = row_sums(x_row, dy_row, weight_ptr, N_COLS, BLOCK)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = rstd * sum_gx / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        x = load(x_row, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * g - (x * rstd) * (rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k): COLS columns of the tiles k, k + groups, k + 2 groups, ..., from the last one down."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tiles = tl.cdiv(n_rows, ROWS)
    steps = tl.cdiv(tiles - group, groups)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for step in range(0, steps):
        tile = group + (steps - 1 - step) * groups
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        total += x.to(tl.float32) * rstd[:, None] * dy.to(tl.float32)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    block = min(triton.next_power_of_2(n_cols), 8192)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
