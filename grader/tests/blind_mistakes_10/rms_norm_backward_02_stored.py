# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | weight_gradient_kernel sums `g * n` with g = dy * weight; the gradient of the weight is the sum of dy * n, without the weight. Shows in dweight of every call whose weight is not 1, also through autograd; dx is right.
"""RMSNorm backward. g is what both kernels start from."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

MOST_GROUPS = 64
ROWS = tl.constexpr(8)
COLS = tl.constexpr(128)


@triton.jit
def gradient_of_n(dy_row, weight_ptr, cols, n_cols):
    """g, the gradient that reaches the normalised row through the weight."""
    return load(dy_row, cols, n_cols) * load(weight_ptr, cols, n_cols)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program i: row i of dx, and rstd of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row, dx_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x, dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        squares += x * x
        products += x * gradient_of_n(dy_row, weight_ptr, start + lanes, N_COLS)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean = tl.sum(products, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        n = rstd * load(x_row, start + lanes, N_COLS)
        g = gradient_of_n(dy_row, weight_ptr, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, (g - mean * n) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x
):
    """Row k of sums: what the rows of group k add to the gradient of the weight."""
    cols = (tl.program_id(axis=0) * COLS + tl.arange(0, COLS))[None, :]
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    exists = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=exists, other=0.0).to(tl.float32)
    tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        rows = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = exists & (rows < n_rows)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        g = dy * weight
        n = x * rstd
        tile += g * n
    total = tl.sum(tile, axis=0)[None, :]
    tl.store(sums_ptr + group * n_cols + cols, total, mask=exists)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and for weight."""
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    groups = min(MOST_GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, weight, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), num_warps=4
    )
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """RMSNorm for autograd."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """y."""
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx, dweight, and nothing for eps."""
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward."""
    return RMSNorm.apply(x, weight, eps)
