# labs/lab4_production_slice/layer_norm_backward.py | race | gradient_kernel, sums (fp32 scratch tensor): loads in lines 67 and 68, stores in lines 69 and 70; programs i and i + 8, i + 16, ... load, add and store the same row i % 8 (line 58) of both matrices in sums without an atomic, for n_rows > 8; values right one program after the other
"""The gradients of LayerNorm, and LayerNorm as a differentiable operator."""

import torch
import triton
import triton.language as tl
from layer_norm import layer_norm_op
from rows import block_of, column_sums, load, on, store
from torch.library import triton_op

SLOTS = 8  # rows of sums for each of the two gradients


@triton.jit
def gradient_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    dx_ptr,
    sums_ptr,
    slots,
    stride_dy,
    stride_x,
    stride_dx,
    eps,
    N_COLS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """dx = rstd * (g - (sum(g) + n * sum(g * n)) / N_COLS), where g = dy * weight; program i computes row i.

    n is the normalised row, (x - mean) * rstd. The program also adds dy * n and dy of its row to a row of the
    two matrices in sums, (2, slots, N_COLS) fp32 and 0 before the launch, while it has them at hand.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    x_row = x_ptr + row * stride_x
    dx_row = dx_ptr + row * stride_dx
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        terms += load(x_row, start + tl.arange(0, BLOCK), N_COLS)
    mean = tl.sum(terms, axis=0) / N_COLS
    terms_dd = tl.zeros((BLOCK,), dtype=tl.float32)
    terms_g = tl.zeros((BLOCK,), dtype=tl.float32)
    terms_gd = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        d = tl.where(cols < N_COLS, load(x_row, cols, N_COLS) - mean, 0.0)
        g = load(dy_row, cols, N_COLS) * load(weight_ptr, cols, N_COLS)
        terms_dd += d * d
        terms_g += g
        terms_gd += g * d
    squares = tl.sum(terms_dd, axis=0)
    sum_g = tl.sum(terms_g, axis=0)
    sum_gd = tl.sum(terms_gd, axis=0)
    rstd = tl.rsqrt(squares / N_COLS + tl.cast(eps, tl.float32))
    mean_g = sum_g / N_COLS
    mean_gn = sum_gd * rstd / N_COLS
    slot = row % slots
    dweight_row = sums_ptr + slot * N_COLS
    dbias_row = sums_ptr + (slots + slot) * N_COLS
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        n = (load(x_row, cols, N_COLS) - mean) * rstd
        dy = load(dy_row, cols, N_COLS)
        g = dy * load(weight_ptr, cols, N_COLS)
        store(dx_row, cols, N_COLS, rstd * (g - mean_g - n * mean_gn))
        dweight = load(dweight_row, cols, N_COLS) + dy * n
        dbias = load(dbias_row, cols, N_COLS) + dy
        store(dweight_row, cols, N_COLS, dweight)
        store(dbias_row, cols, N_COLS, dbias)


def layer_norm_backward(dy, x, weight, *, eps: float = 1e-5, dx=None, dweight=None, dbias=None):
    """Gradients of layer_norm for x, weight and bias, in this order, from dy, which is like x.

    They go to `dx`, `dweight` and `dbias` where these are given.
    """
    dx = torch.empty_like(x) if dx is None else dx
    dweight = torch.empty_like(weight) if dweight is None else dweight
    dbias = torch.empty_like(weight) if dbias is None else dbias
    n_rows, n_cols = x.shape
    slots = min(SLOTS, n_rows)
    sums = x.new_zeros((2, slots, n_cols), dtype=torch.float32)
    # Not autotuned: each trial would add to the sums once more.
    on(gradient_kernel, x)[(n_rows,)](
        dy, x, weight, dx, sums, slots, dy.stride(0), x.stride(0), dx.stride(0), eps,
        N_COLS=n_cols, BLOCK=block_of(n_cols), num_warps=8,
    )  # fmt: skip
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
