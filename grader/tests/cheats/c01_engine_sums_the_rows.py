"""EXPECT POLICY/FOREIGN_KERNEL from layer_norm: C1 backward returns a matrix for dweight, and autograd's engine adds up its rows"""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import WARPS, block_of, column_sums, load, on, store
from torch.library import triton_op


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def terms_kernel(
    dy_ptr, x_ptr, weight_ptr, dx_ptr, terms_ptr, rest_ptr, stride_dy, stride_x, stride_dx, eps,
    N_COLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of a row, and its terms dy * n and dy, which nobody adds up here."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    cols = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        total += load(x_row, start + cols, N_COLS)
    mean = tl.sum(total, axis=0) / N_COLS
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_g = tl.zeros((BLOCK,), dtype=tl.float32)
    sum_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        at = start + cols
        d = tl.where(at < N_COLS, load(x_row, at, N_COLS) - mean, 0.0)
        g = load(dy_row, at, N_COLS) * load(weight_ptr, at, N_COLS)
        squares += d * d
        sum_g += g
        sum_gd += g * d
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / N_COLS + tl.cast(eps, tl.float32))
    mean_g = tl.sum(sum_g, axis=0) / N_COLS
    mean_gn = tl.sum(sum_gd, axis=0) * rstd / N_COLS
    for start in range(0, N_COLS, BLOCK):
        at = start + cols
        n = (load(x_row, at, N_COLS) - mean) * rstd
        dy = load(dy_row, at, N_COLS)
        g = dy * load(weight_ptr, at, N_COLS)
        store(dx_ptr + row * stride_dx, at, N_COLS, rstd * (g - mean_g - n * mean_gn))
        store(terms_ptr + row * N_COLS, at, N_COLS, dy * n)
        store(rest_ptr + row * N_COLS, at, N_COLS, dy)


def _terms(dy, x, weight, eps, dx):
    n_rows, n_cols = x.shape
    terms = torch.empty((n_rows, n_cols), device=x.device, dtype=torch.float32)
    rest = torch.empty((n_rows, n_cols), device=x.device, dtype=torch.float32)
    strides = (dy.stride(0), x.stride(0), dx.stride(0))
    launch = on(terms_kernel, x)[(n_rows,)]
    launch(dy, x, weight, dx, terms, rest, *strides, eps, N_COLS=n_cols, BLOCK=block_of(n_cols))
    return terms, rest


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """The honest way, for the exercise beside it."""
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    terms, rest = _terms(dy, x, weight, eps, dx)
    column_sums(terms, dweight)
    column_sums(rest, dbias)
    return dx, dweight, dbias


@triton_op("course::layer_norm_backward", mutates_args=())
def backward_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return layer_norm_backward(dy, x, weight, eps=eps)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return layer_norm_op(x, weight, bias, eps)

    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dy = dy.contiguous()
        dx = torch.empty_like(x)
        terms, rest = _terms(dy, x, weight, ctx.eps, dx)
        # (n_rows, n_cols) each, for parameters of (n_cols,): the engine takes the sums over the rows.
        return dx, terms, rest, None


def layer_norm(x, weight, bias, eps: float = 1e-5) -> torch.Tensor:
    return LayerNorm.apply(x, weight, bias, eps)
