# labs/lab4_production_slice/rms_norm_backward.py | contract | In `tile`, `boundary_check=(0,)` should be `(0, 1)`: `weight_gradient_kernel` loads x and dy without a mask of columns, so where n_cols is no multiple of 128 it reads the space between rows and past the last row. The numbers are right, as the sums of such columns are not stored, but "The space between rows is neither read nor written" is broken (and it reads out of bounds).
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32


@triton.jit
def gradient(x, g, rstd, slope):
    """dx of some columns, where slope is mean(g * n)."""
    return rstd * (g - x * rstd * slope)


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
    """dx of row i, and its rstd. A row of one block stays in registers, a longer one is read twice."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    small = tl.cast(eps, tl.float32)
    lanes = tl.arange(0, BLOCK)
    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        g = load(dy_row, lanes, N_COLS) * load(weight_ptr, lanes, N_COLS)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N_COLS + small)
        slope = rstd * tl.sum(g * x, axis=0) / N_COLS
        store(dx_row, lanes, N_COLS, gradient(x, g, rstd, slope))
        tl.store(rstd_ptr + row, rstd)
    else:
        squares = 0.0
        products = 0.0
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            g = load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
            squares += tl.sum(x * x, axis=0)
            products += tl.sum(g * x, axis=0)
        rstd = tl.rsqrt(squares / N_COLS + small)
        slope = rstd * products / N_COLS
        for start in range(0, N_COLS, BLOCK):
            x = load(x_row, start + lanes, N_COLS)
            g = load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, gradient(x, g, rstd, slope))
        tl.store(rstd_ptr + row, rstd)


@triton.jit
def tile(ptr, n_rows, n_cols, stride, first_row, first_col, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Return a tile of a matrix in fp32, with zeros for rows past its end."""
    block = tl.make_block_ptr(
        base=ptr,
        shape=(n_rows, n_cols),
        strides=(stride, 1),
        offsets=(first_row, first_col),
        block_shape=(ROWS, COLS),
        order=(1, 0),
    )
    return tl.load(block, boundary_check=(0,), padding_option="zero").to(tl.float32)


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
    """Row k of sums is the sum of dy * n over group k of the rows; program (i, k) has COLS columns of it."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    first_col = tl.program_id(axis=0) * COLS
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        x = tile(x_ptr, n_rows, n_cols, stride_x, start, first_col, ROWS, COLS)
        dy = tile(dy_ptr, n_rows, n_cols, stride_dy, start, first_col, ROWS, COLS)
        dweight += dy * (x * rstd[:, None])
    store(sums_ptr + group * n_cols, first_col + tl.arange(0, COLS), n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    sums = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), ROWS=16, COLS=128
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
