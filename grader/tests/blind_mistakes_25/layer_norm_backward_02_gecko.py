# labs/lab4_production_slice/layer_norm_backward.py | corner | weight_gradient_kernel, `there = rows < n_rows`: the last tile of a part runs on into the rows of the next part, so these rows are counted twice in dweight and dbias; it shows with more than 64 rows where `span` is no multiple of 16 (dx is right). It should be `there = rows < last`.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

PARTS = 32  # of the rows, at most
PART = 64  # rows of a part, at least, where there are as many
WIDTH = 4096  # columns of a block of dx_kernel
TALL, WIDE = 16, 128  # a tile of weight_gradient_kernel


@triton.jit
def g_and_d(dy_row, x_row, weight_ptr, mean, cols, N_COLS: tl.constexpr):
    """dy * weight and x - mean at some columns of a row, both 0 past its end."""
    g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
    return g, d


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    mean_ptr,
    rstd_ptr,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - mean(g) - d * rstd^2 * mean(g * d)), where d = x - mean; program i computes row i.

    Mean and rstd of row i go to element i of two fp32 vectors.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    # Every lane has its own sums; the lanes are joined behind the loops.
    xs = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        xs += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(xs, axis=0) / N_COLS

    dds = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    gds = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        g, d = g_and_d(dy_row, x_row, weight_ptr, mean, start + tl.arange(0, BLOCK), N_COLS)
        dds += d * d
        gs += g
        gds += g * d
    rstd = tl.rsqrt(tl.sum(dds, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    level = tl.sum(gs, axis=0) / N_COLS
    slope = tl.sum(gds, axis=0) / N_COLS * rstd * rstd
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g, d = g_and_d(dy_row, x_row, weight_ptr, mean, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - level - d * slope))


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    span,
    stride_dy,
    stride_x,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Sums over a part of the rows of dy * n and of dy; program (i, k) adds WIDE columns of part k.

    Part k has `span` rows that follow one another, from row k * span on. Its sums go to row k of the two matrices
    in sums, (2, parts, n_cols) fp32.
    """
    part = tl.program_id(axis=1)
    parts = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    first = part * span
    last = tl.minimum(first + span, n_rows)

    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for top in range(first, last, TALL):
        rows = (top + tl.arange(0, TALL)[:, None]).to(tl.int64)
        there = rows < n_rows
        inside = there & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=there, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=there, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + part * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (parts + part) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def join_parts_kernel(sums_ptr, dweight_ptr, dbias_ptr, parts, n_cols, TALL: tl.constexpr, WIDE: tl.constexpr):
    """Add up the sums of all parts, for WIDE columns of both gradients; TALL is at least `parts`."""
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    part = tl.arange(0, TALL)[:, None]
    inside = (part < parts) & (cols < n_cols)
    place = sums_ptr + part * n_cols + cols
    dweight = tl.load(place, mask=inside, other=0.0)
    dbias = tl.load(place + parts * n_cols, mask=inside, other=0.0)
    store(dweight_ptr, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    parts = min(PARTS, triton.cdiv(n_rows, PART))
    span = triton.cdiv(n_rows, parts)
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, parts, n_cols), dtype=torch.float32)

    strides = (dy.stride(0), x.stride(0))
    block = min(block_of(n_cols), WIDTH)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    strips = triton.cdiv(n_cols, WIDE)
    on(weight_gradient_kernel, x)[(strips, parts)](
        dy, x, mean, rstd, sums, n_rows, n_cols, span, *strides, TALL=TALL, WIDE=WIDE
    )
    on(join_parts_kernel, x)[(strips,)](sums, dweight, dbias, parts, n_cols, TALL=PARTS, WIDE=WIDE)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """layer_norm_backward as an operator that torch.compile can look into."""
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    """The operator with its gradients."""

    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        """Return y for x."""
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        return *backward_op(dy.contiguous(), *ctx.saved_tensors, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
