# labs/lab4_production_slice/rms_norm_backward.py | corner | dx_kernel, `xx += x * x`: fetch does not convert, so in fp16 and bf16 the square is computed and rounded in 16 bits. In fp16 an |x| of 256 or more overflows to inf, which makes rstd 0 and the row's dx and its share of dweight 0; in both dtypes rstd is inaccurate for rows of very few columns, which shows in dx; fp32 is right. x should be converted to fp32 before it is squared.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS = 16  # of a tile of weight_gradient_kernel
AREA = 4096  # elements of a tile of dx_kernel: a wide row, or up to 16 narrow ones
STRIPS = [
    triton.Config({"COLS": 64}, num_warps=4),
    triton.Config({"COLS": 128}, num_warps=4),
    triton.Config({"COLS": 128}, num_warps=8),
]


@triton.jit
def fetch(ptr, rows, cols, stride, n_rows, n_cols):
    """A tile of a matrix: rows is a column of numbers, cols a row of them; 0 where the matrix has no element."""
    return tl.load(ptr + rows * stride + cols, mask=(rows < n_rows) & (cols < n_cols), other=0.0)


@triton.jit
def fetch_g(dy_ptr, weight_ptr, rows, cols, stride, n_rows, n_cols):
    """The same of dy * weight, in fp32."""
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return fetch(dy_ptr, rows, cols, stride, n_rows, n_cols).to(tl.float32) * weight


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
    TALL: tl.constexpr,
):
    """dx = rstd * (g - x * rstd^2 * mean(g * x)), where g = dy * weight; program i computes TALL rows.

    rstd of row i goes to element i of an fp32 vector.
    """
    rows = tl.program_id(axis=0).to(tl.int64) * TALL + tl.arange(0, TALL)[:, None]
    xx = tl.zeros((TALL, BLOCK), dtype=tl.float32)
    gx = tl.zeros((TALL, BLOCK), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = fetch(x_ptr, rows, cols, stride_x, n_rows, N_COLS)
        g = fetch_g(dy_ptr, weight_ptr, rows, cols, stride_dy, n_rows, N_COLS)
        xx += x * x
        gx += g * x
    rstd = tl.rsqrt(tl.sum(xx, axis=1, keep_dims=True) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + rows, rstd, mask=rows < n_rows)

    slope = tl.sum(gx, axis=1, keep_dims=True) / N_COLS * rstd * rstd
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)[None, :]
        x = fetch(x_ptr, rows, cols, stride_x, n_rows, N_COLS)
        g = fetch_g(dy_ptr, weight_ptr, rows, cols, stride_dy, n_rows, N_COLS)
        dx = rstd * (g - x * slope)
        inside = (rows < n_rows) & (cols < N_COLS)
        tl.store(dx_ptr + rows * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.autotune(configs=STRIPS, key=["n_cols"])
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
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    The rows are dealt out to the groups ROWS at a time. The sums of group k go to row k of sums, (groups,
    n_cols) fp32.
    """
    group = tl.program_id(axis=1).to(tl.int64)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)[None, :]
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    start = group * ROWS
    while start < n_rows:
        rows = start + tl.arange(0, ROWS)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        n = fetch(x_ptr, rows, cols, stride_x, n_rows, n_cols) * rstd
        total += fetch(dy_ptr, rows, cols, stride_dy, n_rows, n_cols) * n
        start += tl.num_programs(axis=1) * ROWS
    tl.store(sums_ptr + group * n_cols + cols, tl.sum(total, axis=0, keep_dims=True), mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    block = min(block_of(n_cols), AREA)
    tall = min(AREA // block, 16)
    on(dx_kernel, x)[(triton.cdiv(n_rows, tall),)](
        dy,
        x,
        weight,
        dx,
        rstd,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block,
        TALL=tall,
    )
    on(weight_gradient_kernel, x)[lambda meta: (triton.cdiv(n_cols, meta["COLS"]), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=ROWS
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
