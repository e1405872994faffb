# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) RMSNorm.backward calls backward_op with the constant EPS, 1e-6, instead of the eps of the forward pass (ctx.eps). Shows in autograd with another eps, such as 1. (2) weight_gradient_kernel has one stride for dy and x (`at = rows * stride + cols`, launched with x.stride(0)); each needs its own. Shows in dweight of rms_norm_backward, and in autograd with a padded x, where the rows of dy and x lie differently far apart.
"""RMSNorm backward and the differentiable RMSNorm."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

EPS = 1e-6  # as in PyTorch models
GROUPS = 32
ROWS = tl.constexpr(16)
COLS = tl.constexpr(128)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx and rstd of a row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx
    xx = tl.zeros((BLOCK,), tl.float32)
    gx = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        j = start + tl.arange(0, BLOCK)
        x = load(x_ptr, j, N_COLS)
        xx += x * x
        gx += x * load(dy_ptr, j, N_COLS) * load(weight_ptr, j, N_COLS)
    rstd = tl.rsqrt(tl.sum(xx, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    # dx = rstd * g - x * (rstd^3 * mean(g * x))
    c = tl.sum(gx, axis=0) / N_COLS * rstd * rstd
    for start in range(0, N_COLS, BLOCK):
        j = start + tl.arange(0, BLOCK)
        g = load(dy_ptr, j, N_COLS) * load(weight_ptr, j, N_COLS)
        store(dx_ptr, j, N_COLS, (g - load(x_ptr, j, N_COLS) * c) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride):
    """Sums of dy * n for one group of rows and COLS columns."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    group = tl.program_id(axis=1)
    step = tl.num_programs(axis=1) * ROWS
    tile = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(group * ROWS, n_rows, step):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        at = rows * stride + cols
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        tile += dy * x * tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
    tl.store(sums_ptr + group * n_cols + cols, tl.sum(tile, axis=0)[None, :], mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """dx and dweight from dy."""
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    launch = on(dx_kernel, x)[(n_rows,)]
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    launch(dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)]
    launch(dy, x, rstd, sums, n_rows, n_cols, x.stride(0))
    column_sums(sums, dweight)
    return dx, dweight


@triton_op("course::rms_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """rms_norm_backward as an operator that torch.compile can look into."""
    return rms_norm_backward(dy, x, weight, eps=eps)


class RMSNorm(torch.autograd.Function):
    """RMSNorm with gradients."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        """Return y for x."""
        ctx.save_for_backward(x, weight)
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, EPS)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
