# labs/lab4_production_slice/rms_norm_backward.py | right | Rows of up to 4096 columns are done by a persistent kernel that has every 528th row in a program, reads x and dy once and keeps the sums of dweight in registers; wider rows are done by a kernel by rows and one by stripes of 256 columns and contiguous groups of rows, masked with the end of the group. Both paths end in `column_sums`.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

NARROW = 4096  # rows of at most so many columns stay in the registers of a program, with their sums
SWEEPS = 528  # programs for narrow rows: each has every 528th row
GROUPS = 64  # of rows, for wide ones
STRIPE_ROWS, STRIPE_COLS = tl.constexpr(8), tl.constexpr(256)


@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (8, 16)], key=["N_COLS"])
@triton.jit
def sweep_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx of each row of program i, and in row i of sums the sum of dy * n over these rows; BLOCK >= N_COLS."""
    first = tl.program_id(axis=0)
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(first, n_rows, tl.num_programs(axis=0)):
        row = index.to(tl.int64)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        n = x * rstd
        g = dy * weight
        slope = tl.sum(g * n, axis=0) / N_COLS
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * slope))
        dweight += dy * n
    store(sums_ptr + first.to(tl.int64) * N_COLS, cols, N_COLS, dweight)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def wide_kernel(
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
    """dx of row i in program i, block by block, and rstd of the row in element i of a vector."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    sum_xx = 0.0
    sum_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        sum_xx += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
    rstd = tl.rsqrt(sum_xx / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    slope = rstd * (sum_gx / N_COLS)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - n * slope))


@triton.jit
def stripe_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, rows_per_group):
    """Sums of dy * n over group k of neighbouring rows, in the STRIPE_COLS columns of program (i, k)."""
    group = tl.program_id(axis=1)
    begin = group * rows_per_group
    end = tl.minimum(begin + rows_per_group, n_rows)
    cols = tl.program_id(axis=0) * STRIPE_COLS + tl.arange(0, STRIPE_COLS)
    dweight = tl.zeros((STRIPE_ROWS, STRIPE_COLS), dtype=tl.float32)
    for start in range(begin, end, STRIPE_ROWS):
        rows = (start + tl.arange(0, STRIPE_ROWS)[:, None]).to(tl.int64)
        inside = (rows < end) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * (x * tl.load(rstd_ptr + rows, mask=rows < end, other=0.0))
    store(sums_ptr + group.to(tl.int64) * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty((n_cols,), device=x.device, dtype=weight.dtype) if dweight is None else dweight
    strides = dy.stride(0), x.stride(0), dx.stride(0)
    if n_cols <= NARROW:
        sums = torch.empty((min(SWEEPS, n_rows), n_cols), device=x.device, dtype=torch.float32)
        sweep = on(sweep_kernel, x)[(sums.shape[0],)]
        sweep(dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=triton.next_power_of_2(n_cols))
    else:
        per_group = triton.cdiv(n_rows, GROUPS)
        groups = triton.cdiv(n_rows, per_group)
        rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
        sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
        wide = on(wide_kernel, x)[(n_rows,)]
        wide(dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
        stripes = on(stripe_kernel, x)[(triton.cdiv(n_cols, STRIPE_COLS), groups)]
        stripes(dy, x, rstd, sums, n_rows, n_cols, strides[0], strides[1], per_group)
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
