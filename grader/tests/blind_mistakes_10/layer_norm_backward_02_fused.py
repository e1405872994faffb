# labs/lab4_production_slice/layer_norm_backward.py | wrong everywhere | the sums for the weight reuse g = dy * weight: in gradients_kernel `w_sum = ... + g * n`, so dweight has the factor weight; must be dy * n (the sum for the bias takes dy and is right). Shows in dweight wherever the weight is not 1.
"""The gradients of LayerNorm by one kernel: a program has many rows and a row of sums of its own."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

PROGRAMS = 256


@triton.jit
def row_statistics(x_row, dy_row, weight_ptr, eps, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """mean, rstd, mean(g) and mean(g * n) of a row."""
    mean = 0.0
    for start in range(0, N_COLS, BLOCK):
        mean += tl.sum(load(x_row, start + tl.arange(0, BLOCK), N_COLS), axis=0) / N_COLS
    squares = 0.0
    sum_g = 0.0
    sum_gd = 0.0
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        squares += tl.sum(d * d, axis=0)
        sum_g += tl.sum(g, axis=0)
        sum_gd += tl.sum(g * d, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    return mean, rstd, sum_g / N_COLS, sum_gd * rstd / N_COLS


@triton.jit
def gradients_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    sums_ptr,
    n_rows,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program k has rows k, k + programs, ...; it keeps its sums in two rows of `sums`, which nobody else touches."""
    program = tl.program_id(axis=0)
    programs = tl.num_programs(axis=0)
    w_row = sums_ptr + program.to(tl.int64) * N_COLS
    b_row = sums_ptr + (programs + program).to(tl.int64) * N_COLS

    for r in range(program, n_rows, programs):
        row = tl.cast(r, tl.int64)
        dy_row = dy_ptr + row * stride_dy
        x_row = x_ptr + row * stride_x
        dx_row = dx_ptr + row * stride_dx
        mean, rstd, mean_g, mean_gn = row_statistics(x_row, dy_row, weight_ptr, eps, N_COLS, BLOCK)
        for start in range(0, N_COLS, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = load(dy_row, cols, N_COLS)
            g = dy * load(weight_ptr, cols, N_COLS)
            n = (load(x_row, cols, N_COLS) - mean) * rstd
            store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
            # the first row of the program finds no sums yet; column c stays with the same thread
            old = (cols < N_COLS) & (r > program)
            w_sum = tl.load(w_row + cols, mask=old, other=0.0) + g * n
            b_sum = tl.load(b_row + cols, mask=old, other=0.0) + dy
            store(w_row, cols, N_COLS, w_sum)
            store(b_row, cols, N_COLS, b_sum)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order."""
    if dx is None:
        dx = torch.empty_like(x)
    if dweight is None:
        dweight = torch.empty_like(weight)
    if dbias is None:
        dbias = torch.empty_like(weight)
    n_rows, n_cols = x.shape
    programs = min(PROGRAMS, n_rows)
    sums = torch.empty((2, programs, n_cols), device=x.device, dtype=torch.float32)
    on(gradients_kernel, x)[(programs,)](
        dy,
        x,
        weight,
        dx,
        sums,
        n_rows,
        dy.stride(0),
        x.stride(0),
        dx.stride(0),
        eps,
        N_COLS=n_cols,
        BLOCK=block_of(n_cols),
        num_warps=8,
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
        return *backward_op(dy.contiguous(), x, weight, ctx.eps), None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    """Differentiable layer_norm_forward, also under torch.compile."""
    return LayerNorm.apply(x, weight, bias, eps)
