# labs/lab4_production_slice/layer_norm_backward.py | two mistakes | (1) In dx_kernel mean(g * n) is taken as sum_gd / N_COLS, without the factor rstd that turns g * (x - mean) into g * n: it should be sum_gd * rstd / N_COLS. (2) In layer_norm_backward dbias is summed from sums[0], the sums of dy * n, and should be summed from sums[1].
"""Backward pass of LayerNorm."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


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
    """One row of dx for each program, three sweeps over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx

    # sweep 1
    cols = tl.arange(0, BLOCK)
    done = 0
    total = 0.0
    while done < N_COLS:
        total += tl.sum(load(x_row, cols, N_COLS), axis=0)
        cols += BLOCK
        done += BLOCK
    mean = total / N_COLS

    # sweep 2
    cols = tl.arange(0, BLOCK)
    done = 0
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    while done < N_COLS:
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        sum_gd += tl.sum(g * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        squares += tl.sum(d * d, axis=0)
        cols += BLOCK
        done += BLOCK
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    # sweep 3
    mean_g = sum_g / N_COLS
    mean_gn = sum_gd / N_COLS
    cols = tl.arange(0, BLOCK)
    done = 0
    while done < N_COLS:
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
        cols += BLOCK
        done += BLOCK


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Partial sums of dweight and dbias for a group of rows and COLS columns."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    rows = group * ROWS + tl.arange(0, ROWS)[:, None]
    for _ in range(group * ROWS, n_rows, groups * ROWS):
        at = rows.to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)
        x = tl.load(x_ptr + at * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + at, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + at, mask=rows < n_rows, other=0.0)
        dbias += dy
        dweight += dy * (x - mean) * rstd
        rows += groups * ROWS
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = x.new_empty((2, groups, n_cols), dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    column_sums(sums[0], dweight)
    column_sums(sums[0], dbias)
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
