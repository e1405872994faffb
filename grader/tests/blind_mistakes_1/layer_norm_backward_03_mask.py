# lab4_production_slice/layer_norm_backward.py | error | in weight_gradient_kernel `keep = (r < n_rows) & (c < n_cols)` combines the 1-D row numbers (16,) with the 1-D column numbers (128,) without [:, None] / [None, :], two shapes that do not broadcast: the kernel does not compile (ValueError about incompatible dimensions 16 and 128 in the interpreter, too) | "A program of weight_gradient_kernel has 128 columns and one of 32 groups of rows. It adds tiles of 16 rows"; raises for all inputs of layer_norm_backward and layer_norm's backward
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
    dy_ptr, x_ptr, weight_ptr, dx_ptr, mean_ptr, rstd_ptr,
    stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    dy_ptr += row * stride_dy
    dx_ptr += row * stride_dx

    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_ptr, start + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean /= N_COLS

    var = 0.0
    for start in range(0, N_COLS, BLOCK):
        c = start + tl.arange(0, BLOCK)
        d = tl.where(c < N_COLS, load(x_ptr, c, N_COLS) - mean, 0.0)
        var += tl.sum(d * d, axis=0)
    var /= N_COLS
    rstd = tl.rsqrt(var + tl.cast(eps, tl.float32))

    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    mean_g = 0.0
    mean_gn = 0.0
    for start in range(0, N_COLS, BLOCK):
        c = start + tl.arange(0, BLOCK)
        g = load(dy_ptr, c, N_COLS) * load(weight_ptr, c, N_COLS)
        n = (load(x_ptr, c, N_COLS) - mean) * rstd
        mean_g += tl.sum(g, axis=0)
        mean_gn += tl.sum(g * n, axis=0)
    mean_g /= N_COLS
    mean_gn /= N_COLS

    for start in range(0, N_COLS, BLOCK):
        c = start + tl.arange(0, BLOCK)
        g = load(dy_ptr, c, N_COLS) * load(weight_ptr, c, N_COLS)
        n = (load(x_ptr, c, N_COLS) - mean) * rstd
        store(dx_ptr, c, N_COLS, rstd * (g - mean_g - n * mean_gn))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group = tl.program_id(axis=1)
    groups = tl.num_programs(axis=1)
    c = tl.program_id(axis=0) * COLS + tl.arange(0, COLS)
    dweight = tl.zeros((ROWS, COLS), dtype=tl.float32)
    dbias = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(group * ROWS, n_rows, groups * ROWS):
        r = start + tl.arange(0, ROWS).to(tl.int64)
        keep = (r < n_rows) & (c < n_cols)
        dy = tl.load(dy_ptr + r[:, None] * stride_dy + c[None, :], mask=keep, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + r[:, None] * stride_x + c[None, :], mask=keep, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + r, mask=r < n_rows, other=0.0)[:, None]
        rstd = tl.load(rstd_ptr + r, mask=r < n_rows, other=0.0)[:, None]
        dweight += dy * (x - mean) * rstd
        dbias += dy
    store(sums_ptr + group * n_cols, c, n_cols, tl.sum(dweight, axis=0))
    store(sums_ptr + (groups + group) * n_cols, c, n_cols, tl.sum(dbias, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    mean = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    rstd = torch.empty((n_rows,), device=x.device, dtype=torch.float32)
    groups = min(GROUPS, triton.cdiv(n_rows, ROWS))
    sums = torch.empty((2, groups, n_cols), device=x.device, dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](
        dy, x, weight, dx, mean, rstd,
        dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols),
    )
    on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), groups)](
        dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0)
    )
    for which, result in enumerate((dweight, dbias)):
        column_sums(sums[which], result)
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
        grads = backward_op(dy.contiguous(), x, weight, ctx.eps)
        return grads[0], grads[1], grads[2], None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
