# labs/lab4_production_slice/layer_norm_backward.py | right | Two ways: up to 4096 columns, persistent programs compute dx and add up dweight and dbias in registers in the same sweep; longer rows take a kernel by rows with tl.reduce of three sums at a time and a kernel by columns with consecutive chunks of rows.
"""The gradients of LayerNorm: in one sweep where a row fits into registers, in two where it does not."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

NARROW = 4096  # columns of a row that one_sweep_kernel keeps in registers, at most
PROGRAMS = 264  # of one_sweep_kernel at most: each goes from row to row, and has one row of sums
CHUNKS = 48  # of the rows at most, for column_kernel
TALL, WIDE = tl.constexpr(8), tl.constexpr(256)


@triton.jit
def add_two(a, b, c, d):
    """Add two sums at a time."""
    return a + c, b + d


@triton.jit
def add_three(a, b, c, d, e, f):
    """Add three sums at a time."""
    return a + d, b + e, c + f


@triton.autotune(configs=WARPS[1:], key=["N_COLS"])
@triton.jit
def one_sweep_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, sums_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of every programs-th row, and the sums of dy * n and dy over these rows, in (2, programs, N_COLS)."""
    program, programs = tl.program_id(axis=0), tl.num_programs(axis=0)
    cols = tl.arange(0, BLOCK)
    weight = load(weight_ptr, cols, N_COLS)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    dbias = tl.zeros((BLOCK,), dtype=tl.float32)
    for number in range(program, n_rows, programs):
        row = tl.cast(number, tl.int64)
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        d = tl.where(cols < N_COLS, x - tl.sum(x, axis=0) / N_COLS, 0.0)
        g = dy * weight
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        n = d * rstd
        of_g, of_gn = tl.reduce((g, g * n), 0, add_two)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - (of_g + n * of_gn) / N_COLS))
        dweight += dy * n
        dbias += dy
    store(sums_ptr + program * N_COLS, cols, N_COLS, dweight)
    store(sums_ptr + (programs + program) * N_COLS, cols, N_COLS, dbias)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def row_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of a row of several blocks; mean and rstd of row i go to element i of two fp32 vectors."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, dy_row, dx_row = x_ptr + row * stride_x, dy_ptr + row * stride_dy, dx_ptr + row * stride_dx
    of_x, of_dd, of_g, of_gd = 0.0, 0.0, 0.0, 0.0
    for start in range(0, N_COLS, BLOCK):
        of_x += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = of_x / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        more_dd, more_g, more_gd = tl.reduce((d * d, g, g * d), 0, add_three)
        of_dd, of_g, of_gd = of_dd + more_dd, of_g + more_g, of_gd + more_gd
    rstd = tl.rsqrt(of_dd / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    of_gn = of_gd * rstd
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - (of_g + n * of_gn) / N_COLS))


@triton.jit
def column_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, height, stride_dy, stride_x):
    """Sums of dy * n and dy over a chunk of `height` rows; program (i, k) has WIDE columns of chunk k."""
    chunk, chunks = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * WIDE + tl.arange(0, WIDE)
    first = chunk * height
    last = tl.minimum(first + height, n_rows)
    dweight = tl.zeros((TALL, WIDE), dtype=tl.float32)
    dbias = tl.zeros((TALL, WIDE), dtype=tl.float32)
    for start in range(first, last, TALL):
        rows = start + tl.arange(0, TALL)[:, None].to(tl.int64)
        inside = (rows < last) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < last, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < last, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + chunk * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (chunks + chunk) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    block = block_of(n_cols)
    parts = min(PROGRAMS, n_rows) if n_cols <= NARROW else min(CHUNKS, triton.cdiv(n_rows, 8))
    sums = x.new_empty((2, parts, n_cols), dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    if n_cols <= NARROW:
        launch = on(one_sweep_kernel, x)[(parts,)]
        launch(dy, x, weight, dx, sums, n_rows, *strides, eps, N_COLS=n_cols, BLOCK=block)
    else:
        mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
        launch = on(row_kernel, x)[(n_rows,)]
        launch(dy, x, weight, dx, mean, rstd, *strides, eps, N_COLS=n_cols, BLOCK=block)
        launch = on(column_kernel, x)[(triton.cdiv(n_cols, WIDE), parts)]
        height = triton.cdiv(n_rows, parts)
        launch(dy, x, mean, rstd, sums, n_rows, n_cols, height, dy.stride(0), x.stride(0))
    column_sums(sums[0], dweight)
    column_sums(sums[1], dbias)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
