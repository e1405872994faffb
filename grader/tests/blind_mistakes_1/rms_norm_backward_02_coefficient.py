# lab4_production_slice/rms_norm_backward.py | two | (1) dx_kernel: `coef = rstd * sum_gx / N_COLS` is mean(g * n), but it is multiplied by x and not by n = x * rstd, so one factor rstd is missing in the second term of dx; (2) weight_gradient_kernel reads x with `r * stride_dy` instead of stride_x | (1) "dx = rstd * (g - n * mean(g * n))": dx wrong for all inputs whose rstd is not 1; (2) "row i starts at i * stride(0), and each tensor has a stride of its own": dweight wrong only where dy and x have different row strides
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


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
    i = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row, dx_row = dy_ptr + i * stride_dy, x_ptr + i * stride_x, dx_ptr + i * stride_dx
    squares = 0.0
    sum_gx = 0.0
    for block in range(tl.cdiv(N_COLS, BLOCK)):
        j = block * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, j, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(x * load(dy_row, j, N_COLS) * load(weight_ptr, j, N_COLS), axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + i, rstd)
    coef = rstd * sum_gx / N_COLS
    for block in range(tl.cdiv(N_COLS, BLOCK)):
        j = block * BLOCK + tl.arange(0, BLOCK)
        g = load(dy_row, j, N_COLS) * load(weight_ptr, j, N_COLS)
        x = load(x_row, j, N_COLS)
        store(dx_row, j, N_COLS, rstd * (g - x * coef))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    k = tl.program_id(axis=1)
    K = tl.num_programs(axis=1)
    j = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    first = k * ROWS
    while first < n_rows:
        r = (first + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        ok = (r < n_rows) & (j[None, :] < n_cols)
        where = r * stride_dy + j[None, :]
        dy = tl.load(dy_ptr + where, mask=ok, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + where, mask=ok, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + r, mask=r < n_rows, other=0.0)
        acc += dy * (x * rstd)
        first += K * ROWS
    store(sums_ptr + k * n_cols, j, n_cols, tl.sum(acc, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty(n_rows, device=x.device, dtype=torch.float32)
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    sd, sx, so = dy.stride(0), x.stride(0), dx.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, sd, sx, so, eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, rstd, sums, n_rows, n_cols, sd, sx
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
