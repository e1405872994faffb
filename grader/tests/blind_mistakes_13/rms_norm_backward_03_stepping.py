# labs/lab4_production_slice/rms_norm_backward.py | corner | In the second loop of dx_kernel the weight is loaded at `weight_ptr + lanes`, without the start of the block, so dx of a row of more than one block (more than 16384 columns) uses the weights of the first block from the second block on; it should be `weight_ptr + start + lanes`.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)

    # moving blocks of pointers for the sums
    dy_ptrs = dy_ptr + row * stride_dy + lanes
    x_ptrs = x_ptr + row * stride_x + lanes
    weight_ptrs = weight_ptr + lanes
    sq = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        inside = start + lanes < N_COLS
        x = tl.load(x_ptrs, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptrs, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptrs, mask=inside, other=0.0).to(tl.float32)
        sq += x * x
        gx += dy * w * x
        dy_ptrs += BLOCK
        x_ptrs += BLOCK
        weight_ptrs += BLOCK
    rstd = tl.rsqrt(tl.sum(sq, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)

    scale = tl.sum(gx, axis=0) * rstd / N_COLS
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    for start in range(0, N_COLS, BLOCK):
        inside = start + lanes < N_COLS
        x = tl.load(x_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight_ptr + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = rstd * (dy * w - x * rstd * scale)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * x * rstd
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
    stride_dy, stride_x, stride_dx = dy.stride(0), x.stride(0), dx.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, stride_dy, stride_x, stride_dx, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
        dy, x, rstd, sums, n_rows, n_cols, stride_dy, stride_x
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
