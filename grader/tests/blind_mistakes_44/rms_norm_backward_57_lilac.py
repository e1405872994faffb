# labs/lab4_production_slice/rms_norm_backward.py | error | `weight_gradient_kernel`, function `rms_norm_backward`: `dweight = tl.zeros((WIDTH,), dtype=tl.float32)` becomes (HEIGHT, WIDTH) by `dweight += dy * x * rstd[:, None]`: a loop-carried variable changes its type, which Triton does not compile (the interpreter lets it pass, with the right numbers). It should be `tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)`. All cases on a GPU, and every compilation.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 2048  # at most, of the kernel by rows: each goes on to other rows
GROUPS = 32  # of rows at most, each with its own sums
HEIGHT, WIDTH = 16, 128  # the tile that a program of the kernel by columns loads


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
    """dx = rstd * (g - n * sum(g * n) / N_COLS), where g = dy * weight and n = x * rstd.

    A program takes every row whose number, divided by the number of programs, leaves its own. rstd of row i
    goes to element i of an fp32 vector.
    """
    lanes = tl.arange(0, BLOCK)
    for number in range(tl.program_id(axis=0), n_rows, tl.num_programs(axis=0)):
        row = tl.cast(number, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        squares, sum_gx = 0.0, 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            g = load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
            squares += tl.sum(x * x, axis=0)
            sum_gx += tl.sum(g * x, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
        tl.store(rstd_ptr + row, rstd)
        mean_gn = rstd * sum_gx / N_COLS
        for start in range(0, N_COLS, BLOCK):
            n = load(x_row, start + lanes, N_COLS) * rstd
            g = load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
            store(dx_ptr + row * stride_dx, start + lanes, N_COLS, rstd * (g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sums over a group of rows of dy * n; program (i, k) adds WIDTH columns of group k.

    The rows are dealt out to the groups HEIGHT at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    dweight = tl.zeros((WIDTH,), dtype=tl.float32)
    for first in range(group * HEIGHT, n_rows, groups * HEIGHT):
        rows = first + tl.arange(0, HEIGHT)
        wide = rows.to(tl.int64)[:, None]
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + wide * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + wide * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * x * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, HEIGHT))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(min(PROGRAMS, n_rows),)](
        dy, x, weight, dx, rstd, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, WIDTH), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), HEIGHT=HEIGHT, WIDTH=WIDTH
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
