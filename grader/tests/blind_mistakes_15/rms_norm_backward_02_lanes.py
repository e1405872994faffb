# labs/lab4_production_slice/rms_norm_backward.py | corner | RMSNorm.backward hands dy on as autograd gives it, and the kernels take its columns as contiguous: for an expanded, transposed or strided dy they read other elements, or past its end; it should pass dy.contiguous().
"""RMSNorm, differentiable."""

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
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx,
    eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row for each program. Sums are kept for each lane and joined behind the loop."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        w = load(weight_ptr, start + lanes, N_COLS)
        xx += x * x
        gx += dy * w * x
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    projection = tl.sum(gx, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + lanes, N_COLS)
        dy = load(dy_row, start + lanes, N_COLS)
        w = load(weight_ptr, start + lanes, N_COLS)
        dx = (dy * w - x * rstd * projection) * rstd
        store(dx_row, start + lanes, N_COLS, dx)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k): the sums of dy * n over group k of the rows, for COLS columns."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    col_ok = cols < n_cols
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    first = group * ROWS
    while first < n_rows:
        rows = first + tl.arange(0, ROWS)
        row_ok = rows < n_rows
        mask = row_ok[:, None] & col_ok[None, :]
        rstd = tl.load(rstd_ptr + rows, mask=row_ok, other=0.0)
        rows64 = rows.to(tl.int64)
        x = tl.load(x_ptr + rows64[:, None] * stride_x + cols[None, :], mask=mask, other=0.0)
        dy = tl.load(dy_ptr + rows64[:, None] * stride_dy + cols[None, :], mask=mask, other=0.0)
        dweight += dy.to(tl.float32) * x.to(tl.float32) * rstd[:, None]
        first += groups * ROWS
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """dx and dweight, from dy, which is like x."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, rstd,
        dy.stride(0), x.stride(0), dx.stride(0),
        eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.size(0))]
    launch(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
        dx, dweight = backward_op(dy, x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
