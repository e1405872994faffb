# labs/lab4_production_slice/rms_norm_backward.py | contract | rms_norm_backward allocates dweight as fp32 where none is given, so for fp16 and bf16 inputs the returned dweight has the wrong dtype; the README wants new tensors of the dtype of the inputs (torch.empty_like(weight)). The values are right, and a given dweight is written rightly.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 48
ROWS, COLS = tl.constexpr(8), tl.constexpr(256)


@triton.jit
def x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """x and dy * weight at some columns of a row."""
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    return load(x_row, cols, N_COLS), g


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
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + lanes, N_COLS)
        squares += x * x
        products += x * g
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = tl.sum(products, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x, g = x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - x * rstd * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (k, i) adds COLS columns of group k."""
    group = tl.program_id(axis=0)
    groups = tl.num_programs(axis=0)
    cols = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    new = {"device": x.device, "dtype": torch.float32}
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty((n_cols,), **new)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), **new)
    sums = torch.empty((groups, n_cols), **new)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    grid = (groups, triton.cdiv(n_cols, COLS))
    on(weight_gradient_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
