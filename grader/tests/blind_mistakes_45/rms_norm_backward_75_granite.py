# labs/lab4_production_slice/rms_norm_backward.py | error | Skeleton rms_norm_backward.py. `tl.sum(x * x, axis=1, keepdim=True)` and `tl.sum(g * x, axis=1, keepdim=True)` in `dx_kernel`: `tl.sum` has no such argument, it is `keep_dims=True`. The kernel does not compile (TypeError in the interpreter) in all cases of rms_norm_backward and rms_norm.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads
AREA = 2048  # elements of a tile of dx_kernel, where rows are short


@triton.jit
def tile(ptr, rows, cols, stride, inside):
    """Return a tile in fp32, 0 where there is no such element."""
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


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
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight and n = x * rstd, for TALL rows.

    rstd of row i goes to element i of an fp32 vector.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    lanes = tl.arange(0, WIDE)[None, :]
    squares = tl.zeros((TALL, 1), dtype=tl.float32)
    sum_gx = tl.zeros((TALL, 1), dtype=tl.float32)
    for start in range(0, N_COLS, WIDE):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        x = tile(x_ptr, rows, cols, stride_x, inside)
        g = tile(dy_ptr, rows, cols, stride_dy, inside) * weight
        squares += tl.sum(x * x, axis=1, keepdim=True)
        sum_gx += tl.sum(g * x, axis=1, keepdim=True)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)
    mean_gn = rstd * sum_gx / N_COLS
    for start in range(0, N_COLS, WIDE):
        cols = start + lanes
        inside = (rows < n_rows) & (cols < N_COLS)
        weight = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
        n = tile(x_ptr, rows, cols, stride_x, inside) * rstd
        g = tile(dy_ptr, rows, cols, stride_dy, inside) * weight
        dx = rstd * (g - n * mean_gn)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k."""
    group = tl.program_id(axis=1)
    step = tl.num_programs(axis=1) * ROWS
    lanes = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    cols = lanes[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, step):
        rows = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        x = tile(x_ptr, rows, cols, stride_x, inside)
        dy = tile(dy_ptr, rows, cols, stride_dy, inside)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, lanes, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    wide = block_of(n_cols)
    tall = max(AREA // wide, 1)
    on(dx_kernel, x)[(triton.cdiv(n_rows, tall),)](
        dy,
        x,
        weight,
        dx,
        rstd,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        TALL=tall,
        WIDE=wide,
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
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
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
