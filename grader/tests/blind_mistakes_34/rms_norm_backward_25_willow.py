# labs/lab4_production_slice/rms_norm_backward.py | contract | The helper `lanes` of dx_kernel loads a whole block without a mask (`tl.load(row_ptr + cols)`) and puts 0 for the lanes past the end only afterwards, by tl.where; it should load with `mask=cols < n_cols, other=0.0`. The numbers are right, but the space between rows, the next row, and memory past the end of dy, x and weight are read: the README says that the space between rows is neither read nor written. Shows where n_cols is no multiple of BLOCK (no power of two up to 16384, or no multiple of 16384 above it).
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op

PARTS = 32
TALL, WIDE = tl.constexpr(16), tl.constexpr(64)


@triton.jit
def lanes(row_ptr, cols, n_cols):
    """Columns of a row in fp32; lanes past its end count as 0 in every sum."""
    values = tl.load(row_ptr + cols).to(tl.float32)
    return tl.where(cols < n_cols, values, 0.0)


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
    """Program i: row i of dx, and its rstd."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    squares = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = lanes(x_row, cols, N_COLS)
        g = lanes(dy_row, cols, N_COLS) * lanes(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = sum_gx * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = lanes(x_row, cols, N_COLS)
        g = lanes(dy_row, cols, N_COLS) * lanes(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - x * rstd * mean_gn) * rstd)


@triton.jit
def dweight_kernel(dy_ptr, x_ptr, rstd_ptr, parts_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k): part k of the sums of dy * x * rstd in WIDE columns."""
    part, parts = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)[None, :]
    sums = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for top in range(part * TALL, n_rows, parts * TALL):
        rows = top + tl.arange(0, TALL)[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        sums += dy * (x * rstd)
    at = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    store(parts_ptr + part * n_cols, at, n_cols, tl.sum(sums, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    n_parts = min(PARTS, triton.cdiv(n_rows, TALL))
    parts = x.new_empty((n_parts, n_cols), dtype=torch.float32)
    steps = {"stride_dy": dy.stride(0), "stride_x": x.stride(0)}
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, stride_dx=dx.stride(0), eps=eps, N_COLS=n_cols, BLOCK=block_of(n_cols), **steps
    )
    on(dweight_kernel, x)[(triton.cdiv(n_cols, WIDE), n_parts)](dy, x, rstd, parts, n_rows, n_cols, **steps)
    column_sums(parts, dweight)
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
