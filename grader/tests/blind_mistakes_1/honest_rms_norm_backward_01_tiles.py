# lab4_production_slice/rms_norm_backward.py | honest | two kernels cut another way: the first stores only rstd and rstd * mean(g * n) of each row, the second goes over tiles of rows and columns and stores dx and adds up dweight at the same time (x and dy are read twice in all, columns along grid axis 1) | meets the whole contract
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 48
ROWS, COLS = tl.constexpr(8), tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def factors_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    slope_ptr,
    stride_dy,
    stride_x,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """rstd and rstd * rstd * mean(g * x) of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        squares += x * x
        products += x * (load(dy_ptr + row * stride_dy, cols, N_COLS) * load(weight_ptr, cols, N_COLS))
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    tl.store(slope_ptr + row, rstd * (tl.sum(products, axis=0) / N_COLS))


@triton.jit
def tiles_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    rstd_ptr,
    slope_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    stride_dx,
):
    """Program (k, i): columns of block i, tiles k, k + groups, ... of rows."""
    k = tl.program_id(axis=0)
    groups = tl.num_programs(axis=0)
    j = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    weight = load(weight_ptr, j, n_cols)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for t in range(k, tl.cdiv(n_rows, ROWS), groups):
        i = tl.cast(t, tl.int64) * ROWS + tl.arange(0, ROWS)
        known = i < n_rows
        rstd = tl.load(rstd_ptr + i, mask=known, other=0.0)[:, None]
        slope = tl.load(slope_ptr + i, mask=known, other=0.0)[:, None]
        inside = known[:, None] & (j < n_cols)[None, :]
        x = tl.load(x_ptr + i[:, None] * stride_x + j[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + i[:, None] * stride_dy + j[None, :], mask=inside, other=0.0).to(tl.float32)
        n = x * rstd
        acc += dy * n
        dx = rstd * (dy * weight[None, :] - n * slope)
        tl.store(dx_ptr + i[:, None] * stride_dx + j[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
    store(sums_ptr + k.to(tl.int64) * n_cols, j, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    slope = torch.empty_like(rstd)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(factors_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        rstd,
        slope,
        dy.stride(0),
        x.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(tiles_kernel, x)[(sums.shape[0], triton.cdiv(n_cols, COLS))](
        dy,
        x,
        weight,
        dx,
        rstd,
        slope,
        sums,
        n_rows,
        n_cols,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
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
