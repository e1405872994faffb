# labs/lab4_production_slice/rms_norm_backward.py | right | right
"""The gradients of RMSNorm, and RMSNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from rms_norm import rms_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

PARTS = 64  # stretches of neighbouring rows at most
TILE = {"TILE_ROWS": 8, "TILE_COLS": 256}


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
    """dx = rstd * (g - x * slope), where g = dy * weight and slope = rstd^2 * sum(g * x) / N_COLS.

    Program i computes row i, and stores its rstd to element i of an fp32 vector.
    """
    i = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += i * stride_dy
    x_ptr += i * stride_x
    dx_ptr += i * stride_dx

    xx, gx = 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = load(x_ptr, at, N_COLS)
        xx += tl.sum(x * x, axis=0)
        gx += tl.sum(load(dy_ptr, at, N_COLS) * load(weight_ptr, at, N_COLS) * x, axis=0)

    rstd = tl.rsqrt(xx / N_COLS + tl.cast(eps, tl.float32))
    tl.store(rstd_ptr + i, rstd)
    slope = rstd * (rstd * gx / N_COLS)

    for start in range(0, N_COLS, BLOCK):
        at = start + tl.arange(0, BLOCK)
        g = load(dy_ptr, at, N_COLS) * load(weight_ptr, at, N_COLS)
        store(dx_ptr, at, N_COLS, rstd * (g - load(x_ptr, at, N_COLS) * slope))


@triton.jit
def stretch_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    tiles,
    stride_dy,
    stride_x,
    TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
):
    """Row k of sums: dy * x * rstd added up over `tiles` tiles of rows, from tile k * tiles on."""
    part = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * TILE_COLS + tl.arange(0, TILE_COLS)
    in_tile = tl.arange(0, TILE_ROWS)
    total = tl.zeros((TILE_ROWS, TILE_COLS), dtype=tl.float32)
    for t in range(0, tiles):
        rows = (part * tiles + t) * TILE_ROWS + in_tile
        there = (rows < n_rows)[:, None] & (cols < n_cols)[None, :]
        far = rows.to(tl.int64)[:, None]
        dy = tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=there, other=0.0)
        x = tl.load(x_ptr + far * stride_x + cols[None, :], mask=there, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        total += dy.to(tl.float32) * (x.to(tl.float32) * rstd[:, None])
    store(sums_ptr + part.to(tl.int64) * n_cols, cols, n_cols, tl.sum(total, axis=0))


def rms_norm_backward(dy, x, weight, *, eps: float = 1e-6, dx=None, dweight=None):
    """Gradients of rms_norm for x and weight, in this order, from dy, which is like x."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    of_inputs = (dy.stride(0), x.stride(0))

    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, rstd, *of_inputs, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block_of(n_cols)
    )

    # As many tiles for each part as it takes, and then no more parts than have a tile.
    all_tiles = triton.cdiv(n_rows, TILE["TILE_ROWS"])
    tiles = triton.cdiv(all_tiles, PARTS)
    parts = triton.cdiv(all_tiles, tiles)
    sums = torch.empty((parts, n_cols), device=x.device, dtype=torch.float32)
    grid = (triton.cdiv(n_cols, TILE["TILE_COLS"]), parts)
    on(stretch_kernel, x)[grid](dy, x, rstd, sums, n_rows, n_cols, tiles, *of_inputs, **TILE)
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
