# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) dx_kernel loads the weight once, before the loops, with the columns of the first block, it must be loaded at the columns of each block: dx is wrong for n_cols > 2048; (2) weight_gradient_kernel reads rstd at the row's place in the tile (0 to 15), it must be the row of the matrix: dweight is wrong for n_rows > 16
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)
WIDTH = 2048  # of a block at most: it spills less than 16384

DX_CONFIGS = [triton.Config({}, num_warps=w, num_stages=s) for w in (4, 8) for s in (1, 2)]


@triton.autotune(configs=DX_CONFIGS, key=["N_COLS"])
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
    offs = tl.arange(0, BLOCK)
    # the weight is needed in both loops, so keep it in registers
    weight = load(weight_ptr, offs, N_COLS)

    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, N_COLS, BLOCK):
        x = load(x_row, start + offs, N_COLS)
        dy = load(dy_row, start + offs, N_COLS)
        squares += x * x
        products += dy * weight * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = rstd * tl.sum(products, axis=0) / N_COLS

    for start in tl.range(0, N_COLS, BLOCK):
        n = load(x_row, start + offs, N_COLS) * rstd
        g = load(dy_row, start + offs, N_COLS) * weight
        store(dx_row, start + offs, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    lane = tl.arange(0, ROWS)[:, None]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in tl.range(group * ROWS, n_rows, groups * ROWS):
        rows = start + lane
        exists = rows < n_rows
        inside = exists & (cols < n_cols)
        row64 = rows.to(tl.int64)
        dy = tl.load(dy_ptr + row64 * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row64 * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + lane, mask=exists, other=0.0)
        dweight += dy * (x * rstd)
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
    block = min(block_of(n_cols), WIDTH)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), num_warps=8
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
