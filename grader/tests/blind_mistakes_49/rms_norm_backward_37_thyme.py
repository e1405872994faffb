# labs/lab4_production_slice/rms_norm_backward.py | error | In `weight_gradient_kernel`, `dweight = tl.zeros((ROWS, COLS), dtype=x_ptr.dtype.element_ty)` should be `tl.float32`: in the loop `dweight += dy * x * rstd[:, None]` makes it fp32, and a variable of a loop may not change its type. Triton does not compile it for fp16 and bf16; fp32 is right (and the interpreter does not complain).
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import column_sums, load, on, store
from torch.library import triton_op

WIDTH = 8192  # columns of a block at most
GROUPS = 48
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
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
    """dx = rstd * (g - n * mean(g * n)), where g = dy * weight and n = x * rstd; program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lanes = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        x = load(x_row, cols, N_COLS)
        squares += x * x
        products += x * load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = tl.sum(products, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - n * mean_gn))


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
    """Sums of dy * n over a group of rows; program (i, k) adds COLS columns of group k, ROWS rows at a time."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=x_ptr.dtype.element_ty)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        far = rows.to(tl.int64)[:, None]
        dy = tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + far * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * x * rstd[:, None]
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    block = min(triton.next_power_of_2(n_cols), WIDTH)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
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
