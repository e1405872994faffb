# labs/lab4_production_slice/rms_norm_backward.py | corner | dx_kernel, the last loop of the branch for rows of several blocks: the weight is loaded with `lanes` (0 to BLOCK - 1) instead of `cols`, so every block after the first takes the weights of the first block. Shows only in dx, only for rows longer than 16384 columns, only from column 16384 on (with 16385 columns: the last column alone). It should be load(weight_ptr, cols, N_COLS)
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def reciprocal_root(squares, eps, N_COLS: tl.constexpr):
    """1 / sqrt(mean of the squares + eps), in fp32."""
    return tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))


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
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight; program i computes row i.

    A row of one block is read once and stays in registers. A longer one is read twice.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        g = load(dy_row, lanes, N_COLS) * load(weight_ptr, lanes, N_COLS)
        rstd = reciprocal_root(tl.sum(x * x, axis=0), eps, N_COLS)
        n = x * rstd
        mean_gn = tl.sum(g * n, axis=0) / N_COLS
        store(dx_row, lanes, N_COLS, rstd * (g - n * mean_gn))
    else:
        squares = 0.0
        sum_gx = 0.0
        for first in range(0, N_COLS, BLOCK):
            cols = first + lanes
            x = load(x_row, cols, N_COLS)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(g * x, axis=0)
        rstd = reciprocal_root(squares, eps, N_COLS)
        mean_gn = rstd * sum_gx / N_COLS
        for first in range(0, N_COLS, BLOCK):
            cols = first + lanes
            n = load(x_row, cols, N_COLS) * rstd
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, lanes, N_COLS)
            store(dx_row, cols, N_COLS, rstd * (g - n * mean_gn))
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)
        wide = rows.to(tl.int64)
        dy = tl.load(dy_ptr + wide * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + wide * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * x * rstd
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    by_rows = on(dx_kernel, x)[(n_rows,)]
    by_rows(
        dy, x, weight, dx, rstd,
        dy.stride(0), x.stride(0), dx.stride(0),
        eps, N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    by_columns = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    by_columns(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
