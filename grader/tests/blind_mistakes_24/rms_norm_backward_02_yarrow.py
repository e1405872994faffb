# labs/lab4_production_slice/rms_norm_backward.py | corner | dx_kernel, first loop: `(x * x).to(tl.float32)` multiplies in the dtype of x, so in fp16 squares of |x| > 255 are inf and rstd, dx and dweight of such rows become 0 (tiny x underflow, and rows of very few columns lose digits, also in bf16); fp32 is right. It should convert x to fp32 before it is squared.
"""RMSNorm: gradients, and the differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on, store
from torch.library import triton_op


@triton.jit
def fetch(ptr, cols, n_cols):
    """Columns of a row in the dtype they have, 0 past the end."""
    return tl.load(ptr + cols, mask=cols < n_cols, other=0.0)


@triton.jit
def gradient_of_n(dy_row, weight_ptr, cols, n_cols):
    """dy * weight in fp32."""
    dy = fetch(dy_row, cols, n_cols).to(tl.float32)
    weight = fetch(weight_ptr, cols, n_cols).to(tl.float32)
    return dy * weight


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
    """Row i of dx, block by block, and rstd of row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    square_sums = tl.zeros((BLOCK,), dtype=tl.float32)
    product_sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(0, N_COLS, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        x = fetch(x_row, cols, N_COLS)
        square_sums += (x * x).to(tl.float32)
        product_sums += gradient_of_n(dy_row, weight_ptr, cols, N_COLS) * x.to(tl.float32)
    mean_square = tl.sum(square_sums, axis=0) / N_COLS
    rstd = 1.0 / tl.sqrt(mean_square + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + row, rstd)
    share = rstd * (tl.sum(product_sums, axis=0) / N_COLS)

    for at in range(0, N_COLS, BLOCK):
        cols = at + tl.arange(0, BLOCK)
        n = fetch(x_row, cols, N_COLS).to(tl.float32) * rstd
        g = gradient_of_n(dy_row, weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, (g - n * share) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    steps,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Sums of dy * n; part k has steps tiles of ROWS rows, one below the other."""
    part = tl.program_id(axis=0)
    cols = tl.program_id(axis=1) * COLS + tl.arange(0, COLS)
    rows = part.to(tl.int64) * steps * ROWS + tl.arange(0, ROWS)[:, None]
    dy_at = dy_ptr + rows * stride_dy + cols[None, :]
    x_at = x_ptr + rows * stride_x + cols[None, :]
    step_dy = tl.cast(stride_dy, tl.int64) * ROWS
    step_x = tl.cast(stride_x, tl.int64) * ROWS
    column_exists = cols[None, :] < n_cols
    tile = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for _ in range(0, steps):
        row_exists = rows < n_rows
        dy = tl.load(dy_at, mask=row_exists & column_exists, other=0.0).to(tl.float32)
        x = tl.load(x_at, mask=row_exists & column_exists, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + rows, mask=row_exists, other=0.0)
        tile += dy * (x * rstd)
        rows += ROWS
        dy_at += step_dy
        x_at += step_x
    store(sums_ptr + part * n_cols, cols, n_cols, tl.sum(tile, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0))

    block = min(block_of(n_cols), 8192)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )

    tiles = triton.cdiv(n_rows, 8)
    steps = triton.cdiv(tiles, 64)  # tiles of a part, so that there are 64 parts at most
    parts = triton.cdiv(tiles, steps)
    sums = torch.empty((parts, n_cols), device=x.device, dtype=torch.float32)
    on(weight_gradient_kernel, x)[(parts, triton.cdiv(n_cols, 256))](
        dy, x, rstd, sums, n_rows, n_cols, steps, *strides, ROWS=8, COLS=256
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
        y = rms_norm_op(x, weight, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx and dweight for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grads[0], grads[1], None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
