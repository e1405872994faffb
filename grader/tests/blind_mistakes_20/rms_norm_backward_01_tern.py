# labs/lab4_production_slice/rms_norm_backward.py | wrong everywhere | strip_kernel, second loop: the part of dweight is `tl.sum(g * n, axis=0)`, where g = dy * weight; it should be `tl.sum(dy * n, axis=0)`. dweight comes out multiplied by weight; dx is right.
"""The gradients of RMSNorm from one kernel: a program has a strip of rows, for dx and for its part of dweight."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import column_sums, on, store
from torch.library import triton_op

STRIP = 16  # rows of a program
TUNING = [triton.Config({}, num_warps=warps) for warps in (4, 8)]


@triton.jit
def tile_of(pointers, mask):
    """A tile in fp32, 0 where the mask is False."""
    return tl.load(pointers, mask=mask, other=0.0).to(tl.float32)


@triton.autotune(configs=TUNING, key=["N_COLS"])
@triton.jit
def strip_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    parts_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    WIDTH: tl.constexpr,
    HEIGHT: tl.constexpr,
):
    """dx of HEIGHT rows, and the sum of dy * n over them, which goes to row i of parts in program i."""
    strip = tl.program_id(axis=0).to(tl.int64)
    rows = strip * HEIGHT + tl.arange(0, HEIGHT)[:, None]
    present = rows < n_rows
    dy_rows = dy_ptr + rows * stride_dy
    x_rows = x_ptr + rows * stride_x
    dx_rows = dx_ptr + rows * stride_dx

    squares = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    products = tl.zeros((HEIGHT, WIDTH), dtype=tl.float32)
    for start in range(0, N_COLS, WIDTH):
        cols = start + tl.arange(0, WIDTH)[None, :]
        inside = present & (cols < N_COLS)
        x = tile_of(x_rows + cols, inside)
        g = tile_of(dy_rows + cols, inside) * tile_of(weight_ptr + cols, cols < N_COLS)
        squares += x * x
        products += g * x
    mean_square = tl.sum(squares, axis=1)[:, None] / N_COLS
    rstd = tl.rsqrt(mean_square + tl.cast(eps, tl.float32))
    rstd = tl.where(present, rstd, 0.0)  # with eps = 0 it is inf for a row that does not exist
    mean_gn = tl.sum(products, axis=1)[:, None] * rstd / N_COLS

    for start in range(0, N_COLS, WIDTH):
        flat = start + tl.arange(0, WIDTH)
        cols = flat[None, :]
        inside = present & (cols < N_COLS)
        n = tile_of(x_rows + cols, inside) * rstd
        dy = tile_of(dy_rows + cols, inside)
        g = dy * tile_of(weight_ptr + cols, cols < N_COLS)
        dx = rstd * (g - n * mean_gn)
        tl.store(dx_rows + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
        store(parts_ptr + strip * N_COLS, flat, N_COLS, tl.sum(g * n, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x.

    They go to `dx` and `dweight` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    strips = triton.cdiv(n_rows, STRIP)
    parts = torch.empty((strips, n_cols), device=x.device, dtype=torch.float32)
    on(strip_kernel, x)[(strips,)](
        dy,
        x,
        weight,
        dx,
        parts,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        WIDTH=min(triton.next_power_of_2(n_cols), 256),
        HEIGHT=STRIP,
    )
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
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
