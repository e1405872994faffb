# labs/lab4_production_slice/rms_norm_backward.py | corner | weight_gradient_kernel: each group has a contiguous share of `share` rows, but the mask is `rows < n_rows` and not `rows < last`; where share is not a multiple of ROWS (e.g. 29 or 40 rows) the last tile of a group also adds rows of the next group, so dweight counts them twice. Right up to 16 rows and where share is a multiple of 16.
"""RMSNorm: gradients, and the autograd function."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS = tl.constexpr(16)
WIDTHS = [triton.Config({"COLS": cols}, num_warps=warps) for cols, warps in ((64, 4), (128, 4), (128, 8))]


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
    """Row i: rstd, and dx = rstd * g - x * rstd^3 * sum(g * x) / N_COLS."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    squares = 0.0
    sum_gx = 0.0
    for i in range(tl.cdiv(N_COLS, BLOCK)):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        squares += tl.sum(x * x, axis=0)
        sum_gx += tl.sum(dy * weight * x, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    pull = rstd * sum_gx / N_COLS
    for i in range(tl.cdiv(N_COLS, BLOCK)):
        cols = i * BLOCK + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        weight = load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (dy * weight - (x * rstd) * pull))


@triton.autotune(configs=WIDTHS, key=["n_cols"])
@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x, share, COLS: tl.constexpr
):
    """Sums of dy * n over `share` rows one behind the other: group k begins at row k * share."""
    group = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * share
    last = tl.minimum(first + share, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        exists = rows < n_rows
        inside = exists & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        dweight += dy * (x * rstd)
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    share = triton.cdiv(n_rows, groups)
    sums = x.new_empty((groups, n_cols), dtype=torch.float32)

    launch = on(dx_kernel, x)[(n_rows,)]
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    launch(dy, x, weight, dx, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))

    launch = on(weight_gradient_kernel, x)[lambda meta: (triton.cdiv(n_cols, meta["COLS"]), groups)]
    launch(dy, x, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0), share)
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
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
