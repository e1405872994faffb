# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | tile_kernel, `total += g * n`: the gradient of the weight is summed from g = dy * weight instead of dy, so element j of dweight has an extra factor weight[j]. Shows in dweight in every case in which the weight is not 1; dx is right. It should be dy * n
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator.

One kernel goes along the rows and leaves two numbers for each; a second one goes over tiles, where it has all
that both gradients need.
"""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile of tile_kernel


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    pull_ptr,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """rstd of row i, and `pull`, its mean of g * n, as fp32; program i has row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS) * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    tl.store(pull_ptr + row, rstd * sum_gx / N_COLS)


@triton.jit
def tile_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    pull_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """dx = rstd * (g - n * pull) for COLS columns of group k of the rows, and the sums of group k for dweight."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    weight = load(weight_ptr, cols, n_cols)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None]
        exists = rows < n_rows
        inside = exists & (cols < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        pull = tl.load(pull_ptr + rows, mask=exists, other=0.0)
        far = rows.to(tl.int64)
        g = tl.load(dy_ptr + far * stride_dy + cols, mask=inside, other=0.0).to(tl.float32) * weight
        n = tl.load(x_ptr + far * stride_x + cols, mask=inside, other=0.0).to(tl.float32) * rstd
        dx = rstd * (g - n * pull)
        tl.store(dx_ptr + far * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        total += g * n
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd, pull = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(row_kernel, x)[(n_rows,)](
        dy, x, weight, rstd, pull, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(tile_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, weight, rstd, pull, dx, sums, n_rows, n_cols, dy.stride(0), x.stride(0), dx.stride(0)
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
