# labs/lab4_production_slice/layer_norm_backward.py | corner | weight_gradient_kernel: the mask of a slab's tile is `rows < n_rows`, so the last tile of a slab runs on into the next slab and these rows are counted twice; it should be `rows < last`. dweight and dbias are wrong where rows_per_group is no multiple of 16 and there is more than one group (e.g. 40 or 149 rows), dx is right.
"""LayerNorm: gradients for x, weight and bias, and the autograd function."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
ROWS, COLS = tl.constexpr(16), tl.constexpr(128)


@triton.jit
def scaled_gradient(dy_row, weight_ptr, cols, N_COLS: tl.constexpr):
    """g = dy * weight for some columns of a row."""
    return load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def input_gradient_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row of dx, and mean and rstd of this row for the other kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row, dy_row = x_ptr + row * stride_x, dy_ptr + row * stride_dy
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS
    var = 0.0
    mean_g = 0.0
    mean_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = scaled_gradient(dy_row, weight_ptr, cols, N_COLS)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        var += tl.sum(d * d, axis=0) / N_COLS
        mean_g += tl.sum(g, axis=0) / N_COLS
        mean_gd += tl.sum(g * d, axis=0) / N_COLS
    rstd = tl.rsqrt(var + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    mean_gn = mean_gd * rstd
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        g = scaled_gradient(dy_row, weight_ptr, cols, N_COLS)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        store(dx_ptr + row * stride_dx, cols, N_COLS, (g - mean_g - n * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, rows_per_group, stride_dy, stride_x
):
    """Program (i, k): columns i * COLS and on of slab k, which is rows_per_group rows one after the other."""
    group, groups = tl.program_id(axis=1), tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    first = group * rows_per_group
    last = tl.minimum(first + rows_per_group, n_rows)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        exists = rows < n_rows
        inside = exists & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=exists, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=exists, other=0.0)
        dbias += dy
        dweight += dy * (x - mean) * rstd
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Return dx, dweight and dbias, written to the tensors of these names where they are given."""
    n_rows, n_cols = x.shape
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    on(input_gradient_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    rows_per_group = triton.cdiv(n_rows, groups)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, rows_per_group, dy.stride(0), x.stride(0)
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
        y = layer_norm_op(x, weight, bias, eps)
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return (*backward_op(dy.contiguous(), x, weight, ctx.eps), None)


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
