# labs/lab4_production_slice/rms_norm_backward.py | contract | rms_norm_backward: without a given dweight it allocates `x.new_empty((n_cols,), dtype=torch.float32)`, so for fp16 and bf16 the returned dweight is fp32. The contract says new tensors have the dtype of the inputs: it should be torch.empty_like(weight).
"""RMSNorm: the gradients, and the operator with autograd."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def x_and_g(x_row, dy_row, weight_ptr, cols, n_cols):
    """x and g = dy * weight at these columns, in fp32, 0 past the end of the row."""
    g = load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)
    return load(x_row, cols, n_cols), g


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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + tl.arange(0, BLOCK), N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = rstd * sum_gx / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x, g = x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    Tile t of ROWS rows belongs to group t modulo the number of groups.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    tiles = (n_rows + ROWS - 1) // ROWS
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for tile in range(group, tiles, groups):
        rows = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        row_mask = rows < n_rows
        mask = row_mask[:, None] & (cols[None, :] < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=row_mask, other=0.0)[:, None]
        x = tl.load(x_ptr + (rows * stride_x)[:, None] + cols[None, :], mask=mask, other=0.0)
        dy = tl.load(dy_ptr + (rows * stride_dy)[:, None] + cols[None, :], mask=mask, other=0.0)
        dweight += dy.to(tl.float32) * (x.to(tl.float32) * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = x.new_empty((n_cols,), dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    strides = (dy.stride(0), x.stride(0))
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    grid = (triton.cdiv(n_cols, COLS), groups)
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, *strides)
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
