# labs/lab4_production_slice/rms_norm_backward.py | right | at most 2048 programs of dx_kernel, each takes every 2048th row; the weight gradient has groups of consecutive rows, rounded up, with tiles of 32 x 64 and empty groups that store zeros.
"""The gradients of RMSNorm by a fixed number of programs."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 2048
GROUPS = 32
ROWS, COLS = tl.constexpr(32), tl.constexpr(64)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, BLOCK)
    for i in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(i, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        squares = tl.zeros((BLOCK,), dtype=tl.float32)
        gx = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            g = load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
            squares += x * x
            gx += g * x
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)
        mean = tl.sum(gx, axis=0) * rstd / N_COLS
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            g = load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, rstd * (g - x * rstd * mean))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, height, stride_dy, stride_x):
    """Program (i, k) adds COLS columns of the rows from k * height to (k + 1) * height."""
    group = tl.program_id(axis=1)
    begin = group * height
    end = min(begin + height, n_rows)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(begin, end, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < end) & (cols[None, :] < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < end, other=0.0)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((GROUPS, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(min(n_rows, PROGRAMS),)](
        dy, x, weight, dx, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), GROUPS)](
        dy, x, rstd, sums, n_rows, n_cols, triton.cdiv(n_rows, GROUPS), dy.stride(0), x.stride(0)
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward."""
    return RMSNorm.apply(x, weight, eps)
