# labs/lab4_production_slice/layer_norm_backward.py | corner | In LayerNorm.backward the call `backward_op(dy.contiguous(), x, weight, 1e-5)` uses the default eps instead of the eps that forward was given (it should be kept as ctx.eps and passed), so the gradients of layer_norm are wrong for any other eps.
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
    stride_dy, stride_x, stride_dx, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * stride_dy
    x_ptr += row * stride_x
    dx_ptr += row * stride_dx

    mean = 0.0
    for k in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_ptr, k + tl.arange(0, BLOCK), N_COLS), axis=0)
    mean = mean / N_COLS

    dd, sg, sgd = 0.0, 0.0, 0.0
    for k in range(0, N_COLS, BLOCK):
        c = k + tl.arange(0, BLOCK)
        g = load(dy_ptr, c, N_COLS) * load(weight_ptr, c, N_COLS)
        d = tl.where(c < N_COLS, load(x_ptr, c, N_COLS) - mean, 0.0)
        dd += tl.sum(d * d, axis=0)
        sg += tl.sum(g, axis=0)
        sgd += tl.sum(g * d, axis=0)

    rstd = tl.rsqrt(dd / N_COLS + tl.cast(eps, tl.float32))
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

    for k in range(0, N_COLS, BLOCK):
        c = k + tl.arange(0, BLOCK)
        g = load(dy_ptr, c, N_COLS) * load(weight_ptr, c, N_COLS)
        n = (load(x_ptr, c, N_COLS) - mean) * rstd
        store(dx_ptr, c, N_COLS, rstd * (g - (sg + n * (rstd * sgd)) / N_COLS))


@triton.jit
def weight_gradient_kernel(dy_ptr, x_ptr, mean_ptr, rstd_ptr, sums_ptr, n_rows, n_cols, stride_dy, stride_x):
    group, groups = tl.program_id(1), tl.num_programs(1)
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    dw = tl.zeros((ROWS, COLS), tl.float32)
    db = tl.zeros((ROWS, COLS), tl.float32)
    for r in range(group * ROWS, n_rows, groups * ROWS):
        rows = r + tl.arange(0, ROWS)[:, None].to(tl.int64)
        m = (rows < n_rows) & (cols < n_cols)
        dy = tl.load(dy_ptr + rows * stride_dy + cols, mask=m, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + rows * stride_x + cols, mask=m, other=0.0).to(tl.float32)
        mu = tl.load(mean_ptr + rows, mask=rows < n_rows, other=0.0)
        rs = tl.load(rstd_ptr + rows, mask=rows < n_rows, other=0.0)
        dw += dy * (x - mu) * rs
        db += dy
    store(sums_ptr + group * n_cols, cols, n_cols, tl.sum(dw, axis=0))
    store(sums_ptr + (groups + group) * n_cols, cols, n_cols, tl.sum(db, axis=0))


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    mean, rstd = torch.empty((2, n_rows), device=x.device, dtype=torch.float32)
    sums = x.new_empty((2, min(GROUPS, triton.cdiv(n_rows, ROWS)), n_cols), dtype=torch.float32)
    on(dx_kernel, x)[(n_rows,)](dy, x, weight, dx, mean, rstd, dy.stride(0), x.stride(0), dx.stride(0), eps,
                                N_COLS=n_cols, BLOCK=block_of(n_cols))  # fmt: skip
    launch = on(weight_gradient_kernel, x)[(triton.cdiv(n_cols, COLS), sums.size(1))]
    launch(dy, x, mean, rstd, sums, n_rows, n_cols, dy.stride(0), x.stride(0))
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
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = backward_op(dy.contiguous(), x, weight, 1e-5)
        return dx, dweight, dbias, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
