# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) In dx_kernel `dots` adds up `x * dy`; it should be g * x = x * dy * weight. So mean(g * n) is that of dy, and dx is wrong in (nearly) every case where the weight is not all ones; the g of the last loop is right. (2) In weight_gradient_kernel rstd is loaded from `rstd_ptr + lane` in every tile; it should be `rstd_ptr + rows`, with the start of the tile. Each tile is normalised by the rstd of rows 0 to 15, so dweight is wrong with more than 16 rows, right with 16 or fewer.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


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
    """dx = rstd * (g - n * mean(g * n)) for row i, where g = dy * weight and n = x * rstd."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    dots = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lane, N_COLS)
        dy = load(dy_row, start + lane, N_COLS)
        squares += x * x
        dots += x * dy
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    along = tl.sum(dots, axis=0) * rstd / N_COLS

    for start in range(0, N_COLS, BLOCK):
        cols = start + lane
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - along * n))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n over a group of rows; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    lane = tl.arange(0, ROWS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + lane
        exists = rows < n_rows
        rstd = tl.load(rstd_ptr + lane, mask=exists, other=0.0)
        inside = exists[:, None] & (cols[None, :] < n_cols)
        dy_tile = dy_ptr + rows.to(tl.int64)[:, None] * stride_dy + cols[None, :]
        x_tile = x_ptr + rows.to(tl.int64)[:, None] * stride_x + cols[None, :]
        n = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32) * rstd[:, None]
        dweight += tl.load(dy_tile, mask=inside, other=0.0).to(tl.float32) * n
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
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
