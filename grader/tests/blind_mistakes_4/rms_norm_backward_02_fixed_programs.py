# labs/lab4_production_slice/rms_norm_backward.py | corner | rms_norm_backward, rows of up to 1024 columns: sums always has PROGRAMS rows, but only min(PROGRAMS, n_rows) programs store one, so with fewer than 264 rows column_sums adds uninitialised memory to dweight; sums must have as many rows as there are programs (or be zeros).
"""RMSNorm backward. Rows of up to 1024 columns: one kernel for dx and the partial sums. Longer rows: two kernels."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 264
GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def fused_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, sums_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program k has rows k, k + grid_size, ... and keeps its share of dweight in registers."""
    k = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    w = load(weight_ptr, cols, N_COLS)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(k, n_rows, tl.num_programs(axis=0)):
        row = tl.cast(i, tl.int64)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        n = x * rstd
        g = dy * w
        mean_gn = tl.sum(g * x, axis=0) * rstd / N_COLS
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * mean_gn))
        dweight += dy * n
    store(sums_ptr + k * N_COLS, cols, N_COLS, dweight)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    factor = sum_gx * rstd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - x * factor))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = first + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    if n_cols <= 1024:
        grid_size = min(PROGRAMS, n_rows)
        sums = x.new_empty((PROGRAMS, n_cols), dtype=torch.float32)
        on(fused_kernel, x)[(grid_size,)](
            dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
        )
    else:
        rstd = x.new_empty((n_rows,), dtype=torch.float32)
        sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
        on(dx_kernel, x)[(n_rows,)](
            dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
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
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
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
    return RMSNorm.apply(x, weight, eps)
