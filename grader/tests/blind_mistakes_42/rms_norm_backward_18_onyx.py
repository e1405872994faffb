# labs/lab4_production_slice/rms_norm_backward.py | contract | In `rms_norm_backward`, `dx = torch.empty_strided((n_rows, n_cols), x.stride(), ...)` takes over the row stride of x; where no dx is given, the README asks for a new contiguous tensor (`torch.empty_like(x)` gives one, as does `torch.empty((n_rows, n_cols), ...)`). All numbers are right; it shows where dx is not given and the rows of x do not touch.
"""The gradients of RMSNorm by persistent programs, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 4096  # of dx_kernel at most; each has every so many-th row
SLICES = 32  # of the rows at most, each with its own sums
HEIGHT, WIDTH = tl.constexpr(32), tl.constexpr(64)


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
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight and n = x * rstd.

    A program goes from row to row. The rstd of row i goes to element i of an fp32 vector.
    """
    lanes = tl.arange(0, BLOCK)
    eps = tl.cast(eps, tl.float32)
    for number in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(number, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        power = 0.0
        inner = 0.0
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            x = load(x_row, cols, N_COLS)
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            power += tl.sum(x * x, axis=0)
            inner += tl.sum(g * x, axis=0)
        rstd = tl.rsqrt(power / N_COLS + eps)
        tl.store(rstd_ptr + row, rstd)
        mean_gn = inner / N_COLS * rstd
        for start in range(0, N_COLS, BLOCK):
            cols = start + lanes
            n = load(x_row, cols, N_COLS) * rstd
            g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
            store(dx_row, cols, N_COLS, (g - n * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums of dy * n over a slice of the rows; program (i, k) has WIDTH columns and slice k."""
    part = tl.program_id(axis=1)
    parts = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    dweight = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for start in range(part * HEIGHT, n_rows, parts * HEIGHT):
        rows = start + tl.arange(0, HEIGHT)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        at = rows.to(tl.int64)[:, None]
        inside = (at < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + at * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x * rstd[:, None])
    store(sums_ptr + part * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_strided((n_rows, n_cols), x.stride(), dtype=x.dtype, device=x.device)
    if dweight is None:
        dweight = torch.empty((n_cols,), dtype=weight.dtype, device=weight.device)
    parts = min(SLICES, triton.cdiv(n_rows, HEIGHT))
    rstd = torch.empty((n_rows,), dtype=torch.float32, device=x.device)
    sums = torch.empty((parts, n_cols), dtype=torch.float32, device=x.device)

    launch = on(dx_kernel, x)[(min(n_rows, PROGRAMS),)]
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    launch(dy, x, weight, dx, rstd, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, WIDTH), parts)]
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
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
