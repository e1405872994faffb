# labs/lab4_production_slice/rms_norm_backward.py | corner | Skeleton rms_norm_backward.py. In `weight_gradient_kernel` a group has the rows from `begin` to `end`, but `inside = (rows < n_rows) & (cols < n_cols)` should have `rows < end`: the last tile of a group also adds rows of the next group. Only dweight is wrong, and only where there are several groups (more than 16 rows) whose height cdiv(n_rows, groups) is no multiple of 16, as with 17, 37 or 600 rows; right with 301, 1000 or 32768 rows.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def x_and_g(x_row, dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """Return x and g = dy * weight at these columns of a row, 0 past its end."""
    return load(x_row, cols, N_COLS), load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


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
    """dx = rstd * (g - n * mean(g * n)) for one row, with n = x * rstd; rstd goes to an fp32 vector."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row, x_row, dx_row = dy_ptr + row * stride_dy, x_ptr + row * stride_x, dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    squares = 0.0
    products = 0.0
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + lanes, N_COLS)
        squares += tl.sum(x * x, axis=0)
        products += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = products * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        x, g = x_and_g(x_row, dy_row, weight_ptr, start + lanes, N_COLS)
        store(dx_row, start + lanes, N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    A group has rows that lie one behind the other, as many as each of the others but for the last ones.
    """
    group = tl.program_id(axis=1)
    height = tl.cdiv(n_rows, tl.num_programs(axis=1))
    begin = group * height
    end = tl.minimum(begin + height, n_rows)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(begin, end, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x * rstd)
    sums = tl.sum(dweight, axis=0)[None, :]
    tl.store(sums_ptr + group * n_cols + cols, sums, mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    launch = on(dx_kernel, x)[(n_rows,)]
    launch(
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])]
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
