# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) In `dx_kernel`, `b = a * a * (gx / N_COLS)` should be `a * a * a * (gx / N_COLS)`: a factor rstd is missing, dx is wrong everywhere. (2) In `chunk_kernel`, `length = n_rows // tl.num_programs(axis=1)` rounds down (it should round up, with `end` at most n_rows): the last rows are in no chunk, dweight is wrong where n_rows is no multiple of the number of chunks, min(32, cdiv(n_rows, 16)), as for 29, 37, 301 or 600 rows.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

CHUNKS = 32  # of rows, at most


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
    """dx = a * g - b * x for row i, where g = dy * weight, and a and b are two numbers of the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    dx_row = dx_ptr + row * stride_dx

    xx = 0.0
    gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        xx += tl.sum(x * x, axis=0)
        gx += tl.sum(x * load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS), axis=0)

    a = tl.rsqrt(xx / N_COLS + tl.cast(eps, tl.float32))
    b = a * a * (gx / N_COLS)
    tl.store(rstd_ptr + row, a)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, a * g - b * load(x_row, cols, N_COLS))


@triton.jit
def chunk_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Row k of sums is the sum of dy * n over chunk k, rows next to each other; COLS columns a program."""
    chunk = tl.program_id(axis=1)
    length = n_rows // tl.num_programs(axis=1)
    first = chunk * length
    end = first + length
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, end, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < end) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < end, other=0.0)
        total += dy * x * rstd
    store(sums_ptr + chunk * n_cols, cols, n_cols, tl.sum(total, axis=0))


@triton.jit
def sum_kernel(sums_ptr, dweight_ptr, chunks, n_cols, COLS: tl.constexpr):
    """dweight is the sum of the rows of sums, which are added one after the other."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((COLS,), dtype=tl.float32)
    for chunk in range(0, chunks):
        total += load(sums_ptr + chunk * n_cols, cols, n_cols)
    store(dweight_ptr, cols, n_cols, total)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    chunks = min(CHUNKS, triton.cdiv(n_rows, 16))
    sums = torch.empty((chunks, n_cols), device=x.device, dtype=torch.float32)
    strides = [dy.stride(0), x.stride(0)]
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    on(chunk_kernel, x)[(triton.cdiv(n_cols, 128), chunks)](
        dy, x, rstd, sums, n_rows, n_cols, *strides, ROWS=16, COLS=128, num_warps=4
    )
    on(sum_kernel, x)[(triton.cdiv(n_cols, 128),)](sums, dweight, chunks, n_cols, COLS=128)
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
        dx, dweight = backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
