# labs/lab4_production_slice/softmax.py | two mistakes | (1) softmax_kernel stores exp(x - (top + log(total))): the fp32 sum top + log(total) loses the digits of log(total) where the row lies far from 0 (at 1e28 it is gone altogether, the y of equal maxima are all 1; in fp32 digits are lost from about 10 on); it should be exp(x - top) / total. (2) gradient_kernel goes backward from last = N_COLS // BLOCK * BLOCK, which should be (N_COLS - 1) // BLOCK * BLOCK: where N_COLS is a multiple of BLOCK (powers of two up to 16384) the first block of dx is never stored.
"""Softmax by the logarithm of the sum: y = exp(x - lse)."""

import torch
import triton
import triton.language as tl
from rows import WARPS, block_of, load, on, store
from torch.library import triton_op


@triton.jit
def log_sum_exp(x_row, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """Return the logarithm of sum(exp(x)) over a row."""
    top = -3.4028234663852886e38
    total = 0.0
    for start in range(0, N_COLS, BLOCK):
        x = load(x_row, start + tl.arange(0, BLOCK), N_COLS, -float("inf"))
        old = top
        top = tl.maximum(old, tl.max(x, axis=0))
        total = total * tl.exp(old - top) + tl.sum(tl.exp(x - top), axis=0)
    return top + tl.log(total)


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride_x, stride_y, N_COLS: tl.constexpr, BLOCK: tl.constexpr):
    """y = exp(x) / sum(exp(x)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lse = log_sum_exp(x_row, N_COLS, BLOCK)
    for start in range(0, N_COLS, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load(x_row, cols, N_COLS)
        store(y_row, cols, N_COLS, tl.exp(x - lse))  # one subtraction, no division


def fused_softmax_forward(x, *, out=None) -> torch.Tensor:
    """Softmax over the last dimension of x; the result goes to `out` where one is given."""
    out = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    on(softmax_kernel, x)[(n_rows,)](
        x, out, x.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton.autotune(configs=WARPS, key=["N_COLS"])
@triton.jit
def gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, stride_dy, stride_y, stride_dx, N_COLS: tl.constexpr, BLOCK: tl.constexpr
):
    """dx = y * (dy - sum(y * dy)); program i computes row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    terms = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, N_COLS, BLOCK):
        terms += load(y_row, start + lanes, N_COLS) * load(dy_row, start + lanes, N_COLS)
    products = tl.sum(terms, axis=0)
    # The last block was read a moment ago and is still in the cache, so go back from there.
    last = N_COLS // BLOCK * BLOCK
    for back in range(0, N_COLS, BLOCK):
        cols = last - back + lanes
        y = load(y_row, cols, N_COLS)
        dy = load(dy_row, cols, N_COLS)
        store(dx_row, cols, N_COLS, y * (dy - products))


def fused_softmax_backward(dy, y, *, out=None) -> torch.Tensor:
    """Gradient of softmax for its input, from dy and the result y of the forward pass."""
    out = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    on(gradient_kernel, dy)[(n_rows,)](
        dy, y, out, dy.stride(0), y.stride(0), out.stride(0), N_COLS=n_cols, BLOCK=block_of(n_cols)
    )
    return out


@triton_op("course::fused_softmax", mutates_args=())
def forward_op(x: torch.Tensor) -> torch.Tensor:
    """fused_softmax_forward as an operator that torch.compile can look into."""
    return fused_softmax_forward(x)


@triton_op("course::fused_softmax_backward", mutates_args=())
def backward_op(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """fused_softmax_backward, likewise."""
    return fused_softmax_backward(dy, y)


class FusedSoftmax(torch.autograd.Function):
    """The operator with its gradient."""

    @staticmethod
    def forward(ctx, x):
        """Return y for x."""
        y = forward_op(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Return dx for dy."""
        y = ctx.saved_tensors[0]
        dy = dy.contiguous()
        return backward_op(dy, y)


def fused_softmax(x) -> torch.Tensor:
    """Differentiable fused_softmax_forward, also under torch.compile."""
    return FusedSoftmax.apply(x)
