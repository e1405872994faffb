# labs/lab4_production_slice/rms_norm_backward.py | two mistakes | (1) weight_gradient_kernel adds dy * x and leaves out rstd: dweight should be the sum of dy * x * rstd. (2) RMSNorm.backward calls backward_op with 1e-6 in place of the eps that forward got; it should keep eps on ctx and pass it.
"""The gradients of RMSNorm."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)
EPS = 1e-6


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
    """dx of row i by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    squares = 0.0
    sum_gx = 0.0
    cols = tl.arange(0, BLOCK)
    for _ in range(0, N_COLS, BLOCK):
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(g * x, axis=0)
        cols += BLOCK
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    sum_gn = rstd * sum_gx
    cols = tl.arange(0, BLOCK)
    for _ in range(0, N_COLS, BLOCK):
        n = load(x_row, cols, N_COLS) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - n * (sum_gn / N_COLS)))
        cols += BLOCK


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Column sums of one group of rows: tiles of ROWS by COLS, whose pointers move on."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    rows = group * ROWS + tl.arange(0, ROWS)[:, None]
    dy_tile = dy_ptr + rows.to(tl.int64) * stride_dy + cols
    x_tile = x_ptr + rows.to(tl.int64) * stride_x + cols
    step = (groups * ROWS).to(tl.int64)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(group * ROWS, n_rows, groups * ROWS):
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_tile, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_tile, mask=inside, other=0.0).to(tl.float32)
        dweight += dy * x
        rows += groups * ROWS
        dy_tile += step * stride_dy
        x_tile += step * stride_x
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = EPS, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
        dy, x, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
        return rms_norm_op(x, weight, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight = backward_op(dy.contiguous(), x, weight, EPS)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = EPS) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
