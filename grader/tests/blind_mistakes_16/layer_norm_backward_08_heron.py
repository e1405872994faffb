# labs/lab4_production_slice/layer_norm_backward.py | right | right
"""The gradients of LayerNorm in three launches: dx, partial sums of slabs of rows, and their sums."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

SLABS = 32
TALL = tl.constexpr(32)
WIDE = tl.constexpr(64)


@triton.jit
def gradient_of_n(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """The gradient that reaches the normalised row."""
    dy = load(dy_row, cols, N_COLS)
    return dy * load(weight_ptr, cols, N_COLS)


@triton.jit
def centred(x_row, mean, cols, N_COLS: tl.constexpr):
    """x - mean, and 0 past the end of the row."""
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def dx_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Row i of dx, and its mean and rstd, by program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx
    lanes = tl.arange(0, BLOCK)

    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_ptr, start + lanes, N_COLS), axis=0) / N_COLS

    variance = 0.0
    mean_g = 0.0
    mean_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        d = centred(x_ptr, mean, start + lanes, N_COLS)
        g = gradient_of_n(dy_ptr, weight_ptr, start + lanes, N_COLS)
        variance += tl.sum(d * d, axis=0) / N_COLS
        mean_g += tl.sum(g, axis=0) / N_COLS
        mean_gd += tl.sum(g * d, axis=0) / N_COLS

    rstd = tl.rsqrt(variance + tl.cast(eps, tl.float32))
    mean_gn = mean_gd * rstd
    for start in range(0, N_COLS, BLOCK):
        n = centred(x_ptr, mean, start + lanes, N_COLS) * rstd
        g = gradient_of_n(dy_ptr, weight_ptr, start + lanes, N_COLS)
        store(dx_ptr, start + lanes, N_COLS, rstd * (g - mean_g - n * mean_gn))

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def slab_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dweights_ptr, dbiases_ptr,
    n_rows, n_cols, tiles, stride_dy, stride_x,
):  # fmt: skip
    """Program (i, k) adds up WIDE columns of slab k, which has `tiles` tiles of TALL rows one below the other."""
    slab = tl.program_id(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    first = slab * tiles * TALL
    for tile in range(tiles):
        rows = (first + tile * TALL + tl.arange(0, TALL)).to(tl.int64)
        there = rows < n_rows
        mean = tl.load(mean_ptr + rows, mask=there, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=there, other=0.0)[:, None]
        inside = there[:, None] & (cols < n_cols)[None, :]
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(dweights_ptr + slab * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbiases_ptr + slab * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


@triton.jit
def add_slabs_kernel(dweights_ptr, dbiases_ptr, dweight_ptr, dbias_ptr, slabs, n_cols):
    """Sums over the slabs, WIDE columns for each program."""
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(0, slabs, TALL):
        slab = start + tl.arange(0, TALL)[:, None]
        inside = (slab < slabs) & (cols < n_cols)[None, :]
        dweight += tl.load(dweights_ptr + slab * n_cols + cols[None, :], mask=inside, other=0.0)
        dbias += tl.load(dbiases_ptr + slab * n_cols + cols[None, :], mask=inside, other=0.0)
    store(dweight_ptr, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip

    all_tiles = triton.cdiv(n_rows, 32)
    tiles = triton.cdiv(all_tiles, SLABS)
    slabs = triton.cdiv(all_tiles, tiles)
    wide = triton.cdiv(n_cols, 64)
    dweights = torch.empty((slabs, n_cols), device=x.device, dtype=torch.float32)
    dbiases = torch.empty((slabs, n_cols), device=x.device, dtype=torch.float32)
    on(slab_kernel, x)[(wide, slabs)](
        dy, x, mean, rstd, dweights, dbiases, n_rows, n_cols, tiles, dy.stride(0), x.stride(0)
    )
    on(add_slabs_kernel, x)[(wide,)](dweights, dbiases, dweight, dbias, slabs, n_cols)
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
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return (
            dx if ctx.needs_input_grad[0] else None,
            dweight if ctx.needs_input_grad[1] else None,
            dbias if ctx.needs_input_grad[2] else None,
            None,
        )


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
