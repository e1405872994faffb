# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | In `weight_gradient_kernel`, `tl.sum(dweight, axis=1)` adds the columns of the square tile instead of its rows; it must be `axis=0`. The tile is 64 x 64, so it compiles; dweight is wrong in all cases (dx is right).
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # of dx_kernel at most; each takes every PROGRAMS-th row
GROUPS = 32  # of rows at most, each with its own sums
SIDE = tl.constexpr(64)  # of the square tile that a program of weight_gradient_kernel adds up


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
):
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight and n = x * rstd, for rows i, i + programs, ..."""
    lanes = tl.arange(0, BLOCK)
    for number in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(number, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        sum_xx = 0.0
        sum_gx = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            x = load(x_row, cols, N_COLS)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            sum_xx += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(g * x, axis=0)
        rstd = 1.0 / tl.sqrt(sum_xx / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)
        mean_gn = sum_gx * rstd / N_COLS
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = load(x_row, cols, N_COLS) * rstd
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_row, cols, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n over a group of rows; program (i, k) adds SIDE columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    lanes = tl.arange(0, SIDE)
    cols = tl.program_id(axis=0) * SIDE + lanes
    dweight = tl.zeros((SIDE, SIDE), dtype=tl.float32)
    for start in range(group * SIDE, n_rows, groups * SIDE):
        rows = (start + lanes).to(tl.int64)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0)
        dweight += dy.to(tl.float32) * (x.to(tl.float32) * rstd[:, None])
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=1))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, SIDE))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(min(n_rows, PROGRAMS),)](
        dy, x, weight, dx, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, SIDE), groups)](
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
