# labs/lab4_production_slice/rms_norm_backward.py | right | Nothing is wrong. Rows of up to 8192 columns take one fused launch, in which a program goes through many rows with moving row pointers, keeps its part of dweight in registers, and stores one row of sums; longer rows take the two kernels of the skeleton. Not autotuned, warps follow the width.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator.

Rows of up to 8192 columns take one kernel: a program goes through many rows and keeps its part of dweight in
registers meanwhile. Longer rows take two kernels, as their part of dweight would not fit.
"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

IN_REGISTERS = 8192  # columns
PROGRAMS = 512  # of the one kernel, at most: four for each SM of an H200, or nearly
GROUPS = 32  # of rows, for the second of the two kernels
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def many_rows_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of rows i, i + programs, i + 2 * programs, ..., and in row i of sums the sum of their dy * n."""
    program = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    first, jump = program.to(tl.int64), programs.to(tl.int64)
    dy_row = dy_ptr + first * stride_dy
    x_row = x_ptr + first * stride_x
    dx_row = dx_ptr + first * stride_dx
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    small = tl.cast(eps, tl.float32)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    for _ in range(program, n_rows, programs):
        x = load(x_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + small)
        n = x * rstd
        g = dy * weight
        store(dx_row, cols, N_COLS, rstd * (g - n * (tl.sum(g * n, axis=0) / N_COLS)))
        dweight += dy * n
        x_row += jump * stride_x
        dy_row += jump * stride_dy
        dx_row += jump * stride_dx
    store(sums_ptr + first * N_COLS, cols, N_COLS, dweight)


@triton.jit
def long_row_kernel(
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
    """dx = rstd * (g - n * sum(g * n) / N_COLS) of row i, block by block, and rstd for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        products += tl.sum(load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS) * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = products * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Row k of sums is the sum of dy * n over group k of rows; program (i, k) has COLS columns of it."""
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, tl.num_programs(axis=1) * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    if n_cols <= IN_REGISTERS:
        programs = min(PROGRAMS, n_rows)
        sums = x.new_empty((programs, n_cols), dtype=torch.float32)
        warps = max(4, min(16, block // 512))
        on(many_rows_kernel, x)[(programs,)](
            dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block, num_warps=warps
        )
    else:
        rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
        groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
        sums = x.new_empty((groups, n_cols), dtype=torch.float32)
        on(long_row_kernel, x)[(n_rows,)](
            dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block, num_warps=16
        )
        on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
            dy, x, rstd, sums, n_rows, n_cols, *strides[:2]
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
