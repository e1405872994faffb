# labs/lab4_production_slice/layer_norm_backward.py | right | Rows of up to 4096 columns: one kernel of persistent programs computes dx and meanwhile adds up dweight and dbias in registers, one row of sums for each program. Longer rows: mean, squares and sum of g * (x - mean) are joined block by block in one sweep (Chan's update, which moves the third sum on with the mean), then a kernel by columns.
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import column_sums, load, on, store
from torch.library import triton_op

WHOLE = 4096  # rows up to this length: one kernel for all gradients
PROGRAMS = 528  # of that kernel, each with its own sums
WIDTH = 8192  # columns of a block of longer rows
GROUPS = 48
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)
CONFIGS = [triton.Config({}, num_warps=warps) for warps in (8, 16)]


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def whole_rows_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, sums_ptr, n_rows, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of rows k, k + programs, ... and, meanwhile, their sums of dy * n and dy, in rows k of two matrices."""
    program = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    cols = tl.arange(0, BLOCK)
    inside = cols < N_COLS
    weight = load(weight_ptr, cols, N_COLS)
    dweight = tl.zeros((BLOCK,), dtype=tl.float32)
    dbias = tl.zeros((BLOCK,), dtype=tl.float32)
    first = program.to(tl.int64)
    for turn in range(0, tl.cdiv(n_rows - program, programs)):
        row = first + turn * programs
        x = load(x_ptr + row * stride_x, cols, N_COLS)
        dy = load(dy_ptr + row * stride_dy, cols, N_COLS)
        mean = tl.sum(x, axis=0) / N_COLS
        d = tl.where(inside, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(d * d, axis=0) / N_COLS + tl.cast(eps, tl.float32))
        n = d * rstd
        g = dy * weight
        mean_g = tl.sum(g, axis=0) / N_COLS
        mean_gn = tl.sum(g * n, axis=0) / N_COLS
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
        dweight += dy * n
        dbias += dy
    store(sums_ptr + program * N_COLS, cols, N_COLS, dweight)
    store(sums_ptr + (programs + program) * N_COLS, cols, N_COLS, dbias)


@triton.autotune(configs=CONFIGS, key=["N_COLS"])
@triton.jit
def long_row_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of row i, whose statistics are joined block by block (Chan, Golub, LeVeque): two sweeps, not three.

    of_gd is the sum of g * (x - mean) for the mean so far; where the mean moves on, it moves on, too.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    dy_row = dy_ptr + row * stride_dy
    seen = 0.0
    mean = 0.0
    squares = 0.0
    of_g = 0.0
    of_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        inside = cols < N_COLS
        x = load(x_row, cols, N_COLS)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        count = tl.sum(inside.to(tl.float32), axis=0)
        here = tl.sum(x, axis=0) / count
        d = tl.where(inside, x - here, 0.0)
        block_g = tl.sum(g, axis=0)
        block_gd = tl.sum(g * d, axis=0)
        both = seen + count
        shift = (here - mean) * (count / both)
        squares += tl.sum(d * d, axis=0) + (here - mean) * shift * seen
        moved = mean + shift
        of_gd += block_gd + (here - moved) * block_g - shift * of_g
        of_g += block_g
        mean = moved
        seen = both
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    mean_g = of_g / N_COLS
    mean_gn = of_gd * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_ptr + row * stride_dx, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def groups_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Of long rows: the sums over a group, COLS columns for each program."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    dx = torch.empty((n_rows, n_cols), device=x.device, dtype=x.dtype) if dx is None else dx
    dweight = torch.empty((n_cols,), device=x.device, dtype=x.dtype) if dweight is None else dweight
    dbias = torch.empty((n_cols,), device=x.device, dtype=x.dtype) if dbias is None else dbias
    if n_cols <= WHOLE:
        parts = min(PROGRAMS, n_rows)
        sums = torch.empty((2, parts, n_cols), device=x.device, dtype=torch.float32)
        on(whole_rows_kernel, x)[(parts,)](
            dy, x, weight, dx, sums, n_rows, dy.stride(0), x.stride(0), dx.stride(0), eps,
            N_COLS=n_cols, BLOCK=triton.next_power_of_2(n_cols),
        )  # fmt: skip
    else:
        parts = min(GROUPS, triton.cdiv(n_rows, 16))
        sums = torch.empty((2, parts, n_cols), device=x.device, dtype=torch.float32)
        mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
        on(long_row_kernel, x)[(n_rows,)](
            dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
            N_COLS=n_cols, BLOCK=WIDTH,
        )  # fmt: skip
        on(groups_kernel, x)[(triton.cdiv(n_cols, 128), parts)](
            dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
        )
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
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
