# labs/lab4_production_slice/layer_norm_backward.py | corner | In weight_gradient_kernel a group has `share` rows in a row, taken TALL = 16 at a time, but its last tile is masked with `rows < n_rows` only. Where share is no multiple of 16 (as for 17, 40 or 100 rows; not up to 16 rows) it also adds the first rows of the next group, so they count twice in dweight and dbias. The mask should be `rows < min(first + share, n_rows)`. dx is right.
"""LayerNorm backward. Rows for dx; blocks of rows, one behind the other, for the gradients of the parameters."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, column_sums, load, on, store
from torch.library import triton_op

GROUPS = 32
TALL, BROAD = 16, 64


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
    """One program, one row. Lanes keep their own sums until the row ends."""
    i = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + i * stride_x
    dy_row = dy_ptr + i * stride_dy
    dx_row = dx_ptr + i * stride_dx
    lane = tl.arange(0, BLOCK)

    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        acc += load(x_row, start + lane, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    dd = tl.zeros((BLOCK,), tl.float32)
    gg = tl.zeros((BLOCK,), tl.float32)
    gd = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, N_COLS, BLOCK):
        c = start + lane
        d = tl.where(c < N_COLS, load(x_row, c, N_COLS) - mean, 0.0)
        g = load(dy_row, c, N_COLS) * load(weight_ptr, c, N_COLS)
        dd += d * d
        gg += g
        gd += g * d
    rstd = tl.rsqrt(tl.sum(dd, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    a = tl.sum(gg, axis=0) / N_COLS
    b = tl.sum(gd, axis=0) * rstd / N_COLS
    tl.store(mean_ptr + i, mean)
    tl.store(rstd_ptr + i, rstd)

    for start in range(0, N_COLS, BLOCK):
        c = start + lane
        n = (load(x_row, c, N_COLS) - mean) * rstd
        g = load(dy_row, c, N_COLS) * load(weight_ptr, c, N_COLS)
        store(dx_row, c, N_COLS, (g - a - n * b) * rstd)


@triton.jit
def weight_gradient_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    dweights_ptr,
    dbiases_ptr,
    n_rows,
    n_cols,
    share,
    stride_dy,
    stride_x,
    TALL: tl.constexpr,
    BROAD: tl.constexpr,
):
    """Group k has `share` rows from row k * share on. Its sums are row k of two fp32 matrices."""
    group = tl.program_id(axis=0)
    cols = tl.program_id(axis=1) * BROAD + tl.arange(0, BROAD)
    first = group * share
    dweight = tl.zeros((TALL, BROAD), tl.float32)
    dbias = tl.zeros((TALL, BROAD), tl.float32)
    for start in range(first, first + share, TALL):
        rows = (start + tl.arange(0, TALL))[:, None].to(tl.int64)
        inside = (rows < n_rows) & (cols < n_cols)[None, :]
        dy = tl.load(dy_ptr + rows * stride_dy + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols[None, :], mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dweight += dy * ((x - mean) * rstd)
        dbias += dy
    store(dweights_ptr + group * n_cols, cols, n_cols, tl.sum(dweight, axis=0))
    store(dbiases_ptr + group * n_cols, cols, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias; they go to dx, dweight and dbias where given."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)

    width = min(triton.next_power_of_2(n_cols), 8192)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps, N_COLS=n_cols, BLOCK=width
    )

    groups = min(GROUPS, triton.cdiv(n_rows, TALL))
    share = triton.cdiv(n_rows, groups)
    dweights = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    dbiases = torch.empty((groups, n_cols), device=x.device, dtype=torch.float32)
    grid = (groups, triton.cdiv(n_cols, BROAD))
    on(weight_gradient_kernel, x)[grid](
        dy,
        x,
        mean,
        rstd,
        dweights,
        dbiases,
        n_rows,
        n_cols,
        share,
        dy.stride(0),
        x.stride(0),
        TALL=TALL,
        BROAD=BROAD,
    )
    column_sums(dweights, dweight)
    column_sums(dbiases, dbias)
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
