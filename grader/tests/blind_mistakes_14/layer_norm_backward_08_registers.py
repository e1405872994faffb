# labs/lab4_production_slice/layer_norm_backward.py | right | Correct; unusual are a branch for rows of one block that keeps x and g in registers, sums of shape (groups, 2, n_cols), and an own kernel in place of column_sums that finishes dweight and dbias in one launch.
"""LayerNorm, backwards."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op

SLICES = tl.constexpr(32)
TALL, WIDE = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def weighted(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.jit
def centred(x_row, mean, cols, N_COLS: tl.constexpr):
    return tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)


@triton.jit
def gradient(g, d, rstd, mean_g, mean_gn):
    return rstd * (g - mean_g - d * rstd * mean_gn)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def by_rows(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    eps32 = tl.cast(eps, tl.float32)

    if N_COLS <= BLOCK:
        x = load(x_row, lanes, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(lanes < N_COLS, x - mean, 0.0)
        g = weighted(dy_row, weight_ptr, lanes, N_COLS)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + eps32)
        mean_g = tl.sum(g, axis=0) / N_COLS
        mean_gn = rstd * tl.sum(g * d, axis=0) / N_COLS
        store(dx_row, lanes, N_COLS, gradient(g, d, rstd, mean_g, mean_gn))
    else:
        sums = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, N_COLS, BLOCK):
            sums += load(x_row, start + lanes, N_COLS)
        mean = tl.sum(sums, axis=0) / N_COLS

        sums_dd = tl.zeros((BLOCK,), tl.float32)
        sums_g = tl.zeros((BLOCK,), tl.float32)
        sums_gd = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, N_COLS, BLOCK):
            d = centred(x_row, mean, start + lanes, N_COLS)
            g = weighted(dy_row, weight_ptr, start + lanes, N_COLS)
            sums_dd += d * d
            sums_g += g
            sums_gd += g * d
        rstd = tl.rsqrt(tl.sum(sums_dd, axis=0) / N_COLS + eps32)
        mean_g = tl.sum(sums_g, axis=0) / N_COLS
        mean_gn = rstd * tl.sum(sums_gd, axis=0) / N_COLS

        for start in range(0, N_COLS, BLOCK):
            d = centred(x_row, mean, start + lanes, N_COLS)
            g = weighted(dy_row, weight_ptr, start + lanes, N_COLS)
            store(dx_row, start + lanes, N_COLS, gradient(g, d, rstd, mean_g, mean_gn))

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def by_columns(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Slice k of the rows: dy * n goes to sums[k, 0], dy to sums[k, 1]."""
    k = tl.program_id(axis=1)
    height = tl.num_programs(axis=1) * TALL
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    w_acc = tl.zeros((TALL, WIDE), tl.float32)
    b_acc = tl.zeros((TALL, WIDE), tl.float32)
    for top in range(k * TALL, n_rows, height):
        rows = (top + tl.arange(0, TALL)).to(tl.int64)
        there = rows < n_rows
        tile = there[:, None] & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows[:, None] * stride_dy + cols[None, :], mask=tile, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows[:, None] * stride_x + cols[None, :], mask=tile, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=there, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=there, other=0.0)
        w_acc += dy * ((x - mean[:, None]) * rstd[:, None])
        b_acc += dy
    store(sums_ptr + 2 * k * n_cols, cols, n_cols, tl.sum(w_acc, axis=0))
    store(sums_ptr + (2 * k + 1) * n_cols, cols, n_cols, tl.sum(b_acc, axis=0))


@triton.jit
def finish(sums_ptr, dweight_ptr, dbias_ptr, slices, n_cols, WIDTH: tl.constexpr):
    """dweight and dbias, WIDTH columns of each; there are at most SLICES slices."""
    cols = tl.program_id(axis=0) * WIDTH + tl.arange(0, WIDTH)
    k = tl.arange(0, SLICES)[:, None]
    inside = (k < slices) & (cols < n_cols)[None, :]
    at = sums_ptr + 2 * k * n_cols + cols[None, :]
    store(dweight_ptr, cols, n_cols, tl.sum(tl.load(at, mask=inside, other=0.0), axis=0))
    store(dbias_ptr, cols, n_cols, tl.sum(tl.load(at + n_cols, mask=inside, other=0.0), axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    slices = min(32, triton.cdiv(n_rows, 16))
    sums = torch.empty((slices, 2, n_cols), device=x.device, dtype=torch.float32)

    on(by_rows, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(by_columns, x)[(triton.cdiv(n_cols, 128), slices)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    on(finish, x)[(triton.cdiv(n_cols, 64),)](sums, dweight, dbias, slices, n_cols, WIDTH=64)
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
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
