# labs/lab4_production_slice/rms_norm_backward.py | corner | In `weight_gradient_kernel` groups are contiguous with `share = cdiv(n_rows, groups)` rows, but the masks are `inside = (rows < n_rows) & ...` and `mask=rows < n_rows`; they should compare with `end`. Where share is no multiple of 16 (e.g. 29, 37 or 600 rows, not up to 16, 300, 301, 1000 or 32768 rows), the last tile of each group also adds the first rows of the next group, and dweight counts these twice.
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32  # of rows at most, each with its own sums
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)  # the tile that a program of weight_gradient_kernel loads


@triton.jit
def load_x_and_g(dy_row, x_row, weight_ptr, start, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the block of x that begins at column `start`, and dy * weight there."""
    cols = start + tl.arange(0, BLOCK)
    return load(x_row, cols, N_COLS), load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


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
    """dx = rstd * g - x * pull in row i, where pull = rstd^3 * mean(g * x) and g = dy * weight.

    rstd of row i goes to element i of an fp32 vector.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    mean_xx = 0.0
    mean_gx = 0.0
    for start in range(0, N_COLS, BLOCK):
        x, g = load_x_and_g(dy_row, x_row, weight_ptr, start, N_COLS, BLOCK)
        mean_xx += tl.sum(x * x, axis=0) / N_COLS
        mean_gx += tl.sum(g * x, axis=0) / N_COLS
    rstd = tl.rsqrt(mean_xx + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    mean_gn = mean_gx * rstd
    for start in range(0, N_COLS, BLOCK):
        x, g = load_x_and_g(dy_row, x_row, weight_ptr, start, N_COLS, BLOCK)
        store(dx_row, start + tl.arange(0, BLOCK), N_COLS, rstd * (g - x * rstd * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Sums over a group of rows of dy * n; program (i, k) adds COLS columns of group k.

    A group has neighbouring rows, as many as every other group but the last. Its sums go to row k of sums,
    (groups, n_cols) fp32.
    """
    group = tl.program_id(axis=1)
    share = tl.cdiv(n_rows, tl.num_programs(axis=1))
    begin = group * share
    end = tl.minimum(begin + share, n_rows)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(begin, end, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty(x.shape, device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty(weight.shape, device=x.device, dtype=x.dtype) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = x.new_empty((min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.shape[0])](
        dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
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
