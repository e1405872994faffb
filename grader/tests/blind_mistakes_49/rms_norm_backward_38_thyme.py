# labs/lab4_production_slice/rms_norm_backward.py | contract | In `rms_norm_backward`, `dx = torch.empty_strided(x.shape, x.stride(), ...)` allocates dx with the row stride of x; it should be a new contiguous tensor (`torch.empty(x.shape, ...)`). Shows where no dx is given and rows of x do not touch: the numbers are right, but the returned dx is not contiguous.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import on
from torch.library import triton_op

WIDTH = 4096
MOST = 64  # groups of rows
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.jit
def piece(ptr, cols, n_cols):
    """Some columns of a row, as fp32."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def rstd_kernel(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, slope_ptr, stride_dy, stride_x, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """rstd and rstd^3 * sum(g * x) / N_COLS of row i, the two numbers that a row of dx needs."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = piece(x_row, cols, N_COLS)
        squares += x * x
        products += piece(dy_row, cols, N_COLS) * piece(weight_ptr, cols, N_COLS) * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    # n * rstd * mean(g * n) is x times this number.
    tl.store(slope_ptr + row, tl.sum(products, axis=0) * rstd * rstd * rstd / N_COLS)


@triton.jit
def both_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, slope_ptr, sums_ptr, n_rows, n_cols,
    stride_dy, stride_x, stride_dx, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """dx of COLS columns of a group of rows, and the sums of dy * n over these rows; x and dy are read once."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    weight = piece(weight_ptr, cols, n_cols)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        slope = tl.load(slope_ptr + rows, mask=rows < n_rows, other=0.0)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dx = rstd * dy * weight - slope * x
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        dweight += dy * (x * rstd)
    sums = tl.sum(dweight, axis=0)[None, :]
    tl.store(sums_ptr + group * n_cols + cols, sums, mask=cols < n_cols)


@triton.jit
def last_kernel(sums_ptr, dweight_ptr, groups, n_cols, HEIGHT: tl.constexpr, COLS: tl.constexpr):
    """Add up the groups, HEIGHT of them at least as many as there are."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    group = tl.arange(0, HEIGHT)[:, None]
    terms = tl.load(sums_ptr + group * n_cols + cols, mask=(group < groups) & (cols < n_cols), other=0.0)
    total = tl.sum(terms, axis=0)[None, :]
    tl.store(dweight_ptr + cols, total.to(dweight_ptr.dtype.element_ty), mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_strided(x.shape, x.stride(), device=x.device, dtype=x.dtype)
    if dweight is None:
        dweight = torch.empty_strided(weight.shape, weight.stride(), device=x.device, dtype=x.dtype)
    rstd, slope = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    on(rstd_kernel, x)[(n_rows,)](
        dy, x, weight, rstd, slope, dy.stride(0), x.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    groups = min(MOST, triton.cdiv(n_rows, 16))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(both_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, weight, dx, rstd, slope, sums, n_rows, n_cols,
        dy.stride(0), x.stride(0), dx.stride(0), ROWS=16, COLS=128,
    )  # fmt: skip
    on(last_kernel, x)[(triton.cdiv(n_cols, 64),)](sums, dweight, groups, n_cols, HEIGHT=MOST, COLS=64)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
