# labs/lab4_production_slice/layer_norm_backward.py | contract | layer_norm_backward: without `dweight` and `dbias` it allocates them as float32 whatever the dtype of x and weight, so a call in fp16 or bf16 returns gradients of the wrong dtype; they should have the dtype of the inputs (torch.empty_like(weight)).
"""LayerNorm backward: one kernel by rows, one by columns."""

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
    stats_ptr,  # (n_rows, 2) fp32: mean and rstd side by side
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - mean(g) - n * mean(g * n)) of one row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    xs = tl.zeros((BLOCK,), dtype=tl.float32)
    gs = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        xs += load(x_row, start + lanes, N_COLS)
        gs += load(dy_row, start + lanes, N_COLS) * load(weight_ptr, start + lanes, N_COLS)
    mean = tl.sum(xs, axis=0) / N_COLS
    mean_g = tl.sum(gs, axis=0) / N_COLS

    dd = tl.zeros((BLOCK,), dtype=tl.float32)
    gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        dd += d * d
        gd += d * load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
    rstd = 1.0 / tl.sqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_gn = rstd * (tl.sum(gd, axis=0) / N_COLS)
    tl.store(stats_ptr + 2 * row, mean)
    tl.store(stats_ptr + 2 * row + 1, rstd)

    for start in range(0, N_COLS, BLOCK):
        cols = start + lanes
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, stats_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Program (i, k) adds COLS columns of the rows of group k to sums, (2, groups, n_cols)."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        rows = (start + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        row_mask = rows < n_rows
        mask = row_mask & (cols < n_cols)
        mean = tl.load(stats_ptr + 2 * rows, mask=row_mask, other=0.0)
        rstd = tl.load(stats_ptr + 2 * rows + 1, mask=row_mask, other=0.0)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=mask, other=0.0).to(tl.float32)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, 16))
    fp32 = {"device": x.device, "dtype": torch.float32}
    stats = torch.empty((n_rows, 2), **fp32)
    sums = torch.empty((2, groups, n_cols), **fp32)
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty((n_cols,), **fp32)
    if dbias is None:
        dbias = torch.empty((n_cols,), **fp32)

    by_rows = on(dx_kernel, x)[(n_rows,)]
    by_rows(
        dy, x, weight, dx, stats, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )  # fmt: skip
    by_columns = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, 128), groups)]
    by_columns(dy, x, stats, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
