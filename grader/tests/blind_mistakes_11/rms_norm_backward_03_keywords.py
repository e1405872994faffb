# labs/lab4_production_slice/rms_norm_backward.py | corner | the launch of weight_gradient_kernel passes x.stride(0), dy.stride(0) in the places of stride_dy, stride_x, so the two are exchanged; must be dy.stride(0), x.stride(0). Shows in dweight where dy and x have different row strides (one of them padded, or padded differently); with equal strides all is right.
"""RMSNorm, gradients for x and for the weight."""

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
    x_ptr, dy_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_x, stride_dy, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    dy_ptr += row * stride_dy
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_ptr, cols, N_COLS)
        g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)

    rstd = 1.0 / tl.sqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    factor = sum_gx / N_COLS * rstd * rstd

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_ptr, cols, N_COLS)
        g = load(dy_ptr, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr, cols, N_COLS, rstd * (g - x * factor))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        x, dy, weight, dx, rstd, x.stride(0), dy.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.size(0))](
        dy, x, rstd, sums, n_rows, n_cols, x.stride(0), dy.stride(0)
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward."""
    return RMSNorm.apply(x, weight, eps)
