# labs/lab4_production_slice/layer_norm_backward.py | right | Nothing is wrong. One sweep finds all sums: each lane keeps running means of x and g and their co-moments (Welford), which `tl.reduce` joins as a tuple of five with an own combine function. Up to 48 groups, and an own kernel that adds them up for dweight and dbias at once.
"""The gradients of LayerNorm after one sweep of a row, and LayerNorm as a differentiable operator.

Each lane keeps the running means of its x and g, and the sums of squares and products of the differences from
them (Welford). The lanes of a row are joined once, behind the loop.
"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, load, on, store
from torch.library import triton_op

LANES = 1024
GROUPS = 48


@triton.jit
def joined(n_a, x_a, g_a, xx_a, gx_a, n_b, x_b, g_b, xx_b, gx_b):
    """Join two sets of columns: their number, means of x and g, sums of squares and of products."""
    n = n_a + n_b
    share = n_b / tl.maximum(n, 1.0)
    x_apart, g_apart = x_b - x_a, g_b - g_a
    weight = n_a * share
    return (
        n,
        x_a + x_apart * share,
        g_a + g_apart * share,
        xx_a + xx_b + x_apart * x_apart * weight,
        gx_a + gx_b + g_apart * x_apart * weight,
    )


@triton.autotune(configs=WARPS[:2], key=["N_COLS"])
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
    """dx = rstd * (g - mean(g) - n * mean(g * n)) of row i, where g = dy * weight; mean and rstd of x."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    n = tl.zeros((BLOCK,), dtype=tl.float32)
    x_mean = tl.zeros((BLOCK,), dtype=tl.float32)
    g_mean = tl.zeros((BLOCK,), dtype=tl.float32)
    xx = tl.zeros((BLOCK,), dtype=tl.float32)
    gx = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n += tl.where(inside, 1.0, 0.0)
        share = 1.0 / tl.maximum(n, 1.0)
        x_off = tl.where(inside, x - x_mean, 0.0)
        g_off = tl.where(inside, g - g_mean, 0.0)
        x_mean += x_off * share
        g_mean += g_off * share
        xx += x_off * (x - x_mean)
        gx += g_off * (x - x_mean)
    _, mean, mean_g, squares, products = tl.reduce((n, x_mean, g_mean, xx, gx), 0, joined)

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    mean_gn = products * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        normal = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - normal * mean_gn))


@triton.jit
def partial_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    sums_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_x,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Row k of sums[0] and of sums[1] are the sums of dy * n and of dy over the rows of group k."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    products = tl.zeros((ROWS, COLS), dtype=tl.float32)
    plain = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = start + tl.arange(0, ROWS)
        exists = rows < n_rows
        inside = exists[:, None] & (cols < n_cols)[None, :]
        far = rows.to(tl.int64)[:, None]
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)[:, None]
        dy = tl.load(dy_ptr + far * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + far * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        products += dy * ((x - mean) * rstd)
        plain += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(products, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(plain, axis=0))


@triton.jit
def finish_kernel(sums_ptr, dweight_ptr, dbias_ptr, groups, n_cols, COLS: tl.constexpr):
    """Add up the rows of sums[0] and of sums[1], one after the other."""
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((COLS,), dtype=tl.float32)
    dbias = tl.zeros((COLS,), dtype=tl.float32)
    for group in range(0, groups):
        dweight += load(sums_ptr + group * n_cols, cols, n_cols)
        dbias += load(sums_ptr + (groups + group) * n_cols, cols, n_cols)
    store(dweight_ptr, cols, n_cols, dweight)
    store(dbias_ptr, cols, n_cols, dbias)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)
    block = min(LANES, triton.next_power_of_2(n_cols))
    strides = dy.stride(0), x.stride(0)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, *strides, dx.stride(0), eps, N_COLS=n_cols, BLOCK=block
    )
    on(partial_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, *strides, ROWS=16, COLS=128, num_warps=4
    )
    on(finish_kernel, x)[(triton.cdiv(n_cols, 128),)](sums, dweight, dbias, groups, n_cols, COLS=128)
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
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
