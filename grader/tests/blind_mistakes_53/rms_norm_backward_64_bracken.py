# labs/lab4_production_slice/rms_norm_backward.py | error | In `weight_gradient_kernel`, `range(group * ROWS, n_rows, GROUPS * ROWS)` reads the global `GROUPS = 32`, a plain int and no `tl.constexpr`: Triton raises a NameError (CompilationError) when it compiles the kernel, in every case on a GPU and for codegen; should be `tl.num_programs(axis=1)` or a constexpr. In the interpreter it runs, with right results.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 2112  # of dx_kernel at most: 16 for each multiprocessor of an H200
GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def incoming(dy_row, weight_ptr, cols, n_cols):
    """Return g = dy * weight at columns `cols` of a row, 0 past its end."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight.

    Program i computes row i and every PROGRAMS-th row behind it. n is the normalised row, x * rstd.
    rstd of row i goes to element i of an fp32 vector.
    """
    lanes = tl.arange(0, BLOCK)
    for row in range(tl.program_id(axis=0).to(tl.int64), n_rows, tl.num_programs(axis=0)):
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        squares = 0.0
        sum_gx = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(x * incoming(dy_row, weight_ptr, start + lanes, N_COLS), axis=0)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)
        mean_gn = rstd * sum_gx / N_COLS
        for start in range(0, N_COLS, BLOCK):
            n = load(x_row, start + lanes, N_COLS) * rstd
            g = incoming(dy_row, weight_ptr, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, GROUPS * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x * load(rstd_ptr, rows, n_rows))
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0))
    on(dx_kernel, x)[(min(n_rows, PROGRAMS),)](
        dy, x, weight, dx, rstd, n_rows, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, *strides
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
