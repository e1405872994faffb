# labs/lab4_production_slice/layer_norm_backward.py | error | weight_gradient_kernel: `mu` is loaded as a vector of ROWS numbers and subtracted from a ROWS x COLS tile in `(t_x - mu) * inv` without `[:, None]` (`inv` has it), so the shapes (16, 128) and (16,) do not broadcast and the kernel does not compile (nor run in the interpreter), in every call of layer_norm_backward and every backward of layer_norm; it should be mu = tl.load(...)[:, None]
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

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
    """One row of dx for each program, in three sweeps over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    lane = tl.arange(0, BLOCK)

    # sweep 1
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        acc += load(x_row, c + lane, N_COLS)
    mean = tl.sum(acc, axis=0) / N_COLS

    # sweep 2: a sum for each lane, reduced once at the end
    acc_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_g = tl.zeros((BLOCK,), dtype=tl.float32)
    acc_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(0, N_COLS, BLOCK):
        j = c + lane
        d = load(x_row, j, N_COLS) - mean
        d = tl.where(j < N_COLS, d, 0.0)
        g = load(weight_ptr, j, N_COLS) * load(dy_row, j, N_COLS)
        acc_dd += d * d
        acc_g += g
        acc_gd += g * d
    squares = tl.sum(acc_dd, axis=0)
    mean_g = tl.sum(acc_g, axis=0) / N_COLS

    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    mean_gn = tl.sum(acc_gd, axis=0) * rstd / N_COLS

    # sweep 3
    for c in range(0, N_COLS, BLOCK):
        j = c + lane
        n = (load(x_row, j, N_COLS) - mean) * rstd
        g = load(weight_ptr, j, N_COLS) * load(dy_row, j, N_COLS)
        store(dx_ptr + row * stride_dx, j, N_COLS, (g - mean_g - n * mean_gn) * rstd)


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    """Group k of the rows and COLS columns for each program: sums of dy * n and of dy."""
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    cols = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    acc_w = tl.zeros((ROWS, COLS), dtype=tl.float32)
    acc_b = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for first in range(group * ROWS, n_rows, groups * ROWS):
        r = (first + tl.arange(0, ROWS)).to(tl.int64)
        live = r < n_rows
        keep = live[:, None] & (cols < n_cols)[None, :]
        t_dy = tl.load(dy_ptr + r[:, None] * stride_dy + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        t_x = tl.load(x_ptr + r[:, None] * stride_x + cols[None, :], mask=keep, other=0.0).to(tl.float32)
        mu = tl.load(mean_ptr + r, mask=live, other=0.0)
        inv = tl.load(rstd_ptr + r, mask=live, other=0.0)[:, None]
        acc_w += (t_x - mu) * inv * t_dy
        acc_b += t_dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(acc_w, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(acc_b, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)

    on(dx_kernel, x)[(n_rows,)](
        dy,
        x,
        weight,
        dx,
        mean,
        rstd,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
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
        ctx.eps = eps
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        """Return dx, dweight and dbias for dy, and None for eps."""
        x, weight = ctx.saved_tensors
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
