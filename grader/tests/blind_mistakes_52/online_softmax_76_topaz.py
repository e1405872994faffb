# labs/lab2_online_softmax/online_softmax.py | error | In `backward_sweeps`, `inner = 0` is an int32 before the loop in which `inner += tl.sum(dy * y, axis=0)` makes it fp32; Triton refuses to compile a loop-carried variable that changes its type. It should be `inner = 0.0`. softmax_backward and the gradient of softmax do not compile for a GPU, in all cases; the interpreter does not notice.
"""Softmax of the rows of a matrix, forward and backward, in two sweeps each."""

import math

import torch
import triton
import triton.language as tl

LOG2_E = math.log2(math.e)


@triton.jit
def load_fp32(ptr, offsets, mask, other: tl.constexpr, keep: tl.constexpr):
    """A block in fp32. Data that is read again stays in the cache; data that is not makes room."""
    if keep:
        block = tl.load(ptr + offsets, mask=mask, other=other, eviction_policy="evict_last")
    else:
        block = tl.load(ptr + offsets, mask=mask, other=other, eviction_policy="evict_first")
    return block.to(tl.float32)


@triton.jit
def forward_sweeps(
    x_ptr, y_ptr, n_cols, row_step_x, row_step_y, SCALE: tl.constexpr, BLOCK: tl.constexpr
):
    """Maximum and sum in the first sweep, the result in the second. SCALE turns exp into exp2."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * row_step_x
    y_row = y_ptr + row * row_step_y

    maximum = -float("inf")
    denominator = 0.0
    for first in tl.range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = load_fp32(x_row, cols, cols < n_cols, other=-float("inf"), keep=True)
        raised = tl.maximum(maximum, tl.max(x, axis=0))
        base = tl.where(raised == -float("inf"), 0.0, raised)
        denominator *= tl.exp2((maximum - base) * SCALE)
        denominator += tl.sum(tl.exp2((x - base) * SCALE), axis=0)
        maximum = raised

    for first in tl.range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = load_fp32(x_row, cols, cols < n_cols, other=-float("inf"), keep=False)
        y = tl.exp2((x - maximum) * SCALE) / denominator
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def backward_sweeps(
    dy_ptr, y_ptr, dx_ptr, n_cols, row_step_dy, row_step_y, row_step_dx, BLOCK: tl.constexpr
):
    """The sum of y * dy in the first sweep, dx in the second."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * row_step_dy
    y_row = y_ptr + row * row_step_y
    dx_row = dx_ptr + row * row_step_dx

    inner = 0
    for first in tl.range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        dy = load_fp32(dy_row, cols, cols < n_cols, other=0.0, keep=True)
        y = load_fp32(y_row, cols, cols < n_cols, other=0.0, keep=True)
        inner += tl.sum(dy * y, axis=0)

    for first in tl.range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        dy = load_fp32(dy_row, cols, cols < n_cols, other=0.0, keep=False)
        y = load_fp32(y_row, cols, cols < n_cols, other=0.0, keep=False)
        dx = (dy - inner) * y
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the columns of x."""
    n_rows, n_cols = x.shape
    y = out
    if y is None:
        y = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), 8192)
    forward_sweeps[(n_rows,)](
        x,
        y,
        n_cols,
        x.stride(0),
        y.stride(0),
        SCALE=LOG2_E,
        BLOCK=block,
        num_warps=4 if block <= 4096 else 8,
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the argument of softmax, from dy and y."""
    n_rows, n_cols = dy.shape
    dx = out
    if dx is None:
        dx = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), 8192)
    backward_sweeps[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=4 if block <= 2048 else 16,
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """An operator of autograd."""

    @staticmethod
    def forward(ctx, x):
        """Softmax of x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Its gradient."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the columns of x."""
    return OnlineSoftmax.apply(x)
