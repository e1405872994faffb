# labs/lab4_production_slice/rms_norm_backward.py | right | Correct; unusual are two-dimensional tiles of one row in dx_kernel, a constexpr branch that keeps a row of one block in registers, and tiles of 8 x 256 in the kernel of the weight.
"""RMSNorm backwards, with two-dimensional tiles in both kernels."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, on
from torch.library import triton_op

DEPTH = 24
HIGH, BROAD = tl.constexpr(8), tl.constexpr(256)


@triton.jit
def tile_at(ptr, rows, stride, cols, n_rows, n_cols):
    """A tile of a matrix in fp32, 0 outside; rows is a column of int64, cols a row."""
    inside = (rows < n_rows) & (cols < n_cols)
    return tl.load(ptr + rows * stride + cols, mask=inside, other=0.0).to(tl.float32)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def input_gradient(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr, n_rows,
    stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0) + tl.arange(0, 1)[:, None].to(tl.int64)
    span = tl.arange(0, BLOCK)[None, :]
    eps = tl.cast(eps, tl.float32)
    if N_COLS <= BLOCK:
        x = tile_at(x_ptr, row, stride_x, span, n_rows, N_COLS)
        w = tl.load(weight_ptr + span, mask=span < N_COLS, other=0.0).to(tl.float32)
        g = tile_at(dy_ptr, row, stride_dy, span, n_rows, N_COLS) * w
        rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / N_COLS + eps)
        n = x * rstd
        dx = rstd * (g - n * (tl.sum(g * n, axis=1, keep_dims=True) / N_COLS))
        tl.store(dx_ptr + row * stride_dx + span, dx.to(dx_ptr.dtype.element_ty), mask=span < N_COLS)
    else:
        xx = tl.zeros((1, BLOCK), tl.float32)
        gx = tl.zeros((1, BLOCK), tl.float32)
        for start in range(0, N_COLS, BLOCK):
            cols = start + span
            x = tile_at(x_ptr, row, stride_x, cols, n_rows, N_COLS)
            w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
            xx += x * x
            gx += tile_at(dy_ptr, row, stride_dy, cols, n_rows, N_COLS) * w * x
        rstd = tl.rsqrt(tl.sum(xx, axis=1, keep_dims=True) / N_COLS + eps)
        mean_gn = tl.sum(gx, axis=1, keep_dims=True) * rstd / N_COLS
        for start in range(0, N_COLS, BLOCK):
            cols = start + span
            n = tile_at(x_ptr, row, stride_x, cols, n_rows, N_COLS) * rstd
            w = tl.load(weight_ptr + cols, mask=cols < N_COLS, other=0.0).to(tl.float32)
            dx = rstd * (tile_at(dy_ptr, row, stride_dy, cols, n_rows, N_COLS) * w - n * mean_gn)
            tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < N_COLS)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def weight_gradient(dy_ptr, x_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    band, bands = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = (tl.program_id(axis=0) * BROAD + tl.arange(0, BROAD))[None, :]
    acc = tl.zeros((HIGH, BROAD), tl.float32)
    for top in range(band * HIGH, n_rows, bands * HIGH):
        rows = top + tl.arange(0, HIGH)[:, None].to(tl.int64)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        n = tile_at(x_ptr, rows, stride_x, cols, n_rows, n_cols) * rstd
        acc += tile_at(dy_ptr, rows, stride_dy, cols, n_rows, n_cols) * n
    total = tl.sum(acc, axis=0, keep_dims=True)
    tl.store(sums_ptr + band * n_cols + cols, total, mask=cols < n_cols)


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    n_rows, n_cols = x.shape
    bands = min(DEPTH, triton.cdiv(n_rows, HIGH))
    rstd = x.new_empty((n_rows,), dtype=torch.float32)
    sums = x.new_empty((bands, n_cols), dtype=torch.float32)
    on(input_gradient, x)[(n_rows,)](
        dy, x, weight, dx, rstd, n_rows,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient, x)[(triton.cdiv(n_cols, BROAD), bands)](
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
        dx, dweight = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, None


def rms_norm(x, weight, eps: float = 1e-6) -> torch.Tensor:
    """Differentiable rms_norm_forward, also under torch.compile."""
    return RMSNorm.apply(x, weight, eps)
