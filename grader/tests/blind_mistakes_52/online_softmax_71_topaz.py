# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `OnlineSoftmax.backward`, `return softmax_backward(y, dy.contiguous())` exchanges the arguments; it should be `softmax_backward(dy.contiguous(), y)`. The gradient of `softmax` becomes dy * (y - s) for every input; softmax_forward and softmax_backward called directly are right.
"""Online softmax with small helpers: one loads a block, one merges it into the running pair, one stores."""

import torch
import triton
import triton.language as tl


def width(args):
    """Columns that a program takes at a time."""
    return min(triton.next_power_of_2(args["n_cols"]), 8192)


def warps(args):
    """One warp for 1024 columns in a narrow block, 8 in the widest."""
    return min(max(width(args) // 1024, 2), 8)


@triton.jit
def fetch(row_ptr, cols, n_cols, fill):
    """Columns of a row in fp32, and `fill` behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns of a row in its own dtype."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def merge(top, mass, x):
    """The running maximum and sum after one more block x."""
    higher = tl.maximum(top, tl.max(x, axis=0))
    return higher, mass * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)


@triton.heuristics({"BLOCK": width})
@triton.jit
def rows_forward(x_ptr, y_ptr, n_cols, x_step, y_step, BLOCK: tl.constexpr):
    """One row of y for each program."""
    row = tl.program_id(0).to(tl.int64)
    source = x_ptr + row * x_step
    target = y_ptr + row * y_step
    lane = tl.arange(0, BLOCK)
    top = -3.0e38  # below any number of a row, but finite: a difference to it is never NaN
    mass = 0.0
    for first in range(0, n_cols, BLOCK):
        top, mass = merge(top, mass, fetch(source, first + lane, n_cols, -float("inf")))
    scale = 1.0 / mass
    for first in range(0, n_cols, BLOCK):
        x = fetch(source, first + lane, n_cols, -float("inf"))
        put(target, first + lane, n_cols, tl.exp(x - top) * scale)


@triton.heuristics({"BLOCK": width})
@triton.jit
def rows_backward(g_ptr, y_ptr, dx_ptr, n_cols, g_step, y_step, dx_step, BLOCK: tl.constexpr):
    """One row of dx for each program: y * (g - sum of g * y)."""
    row = tl.program_id(0).to(tl.int64)
    g_row = g_ptr + row * g_step
    y_row = y_ptr + row * y_step
    dx_row = dx_ptr + row * dx_step
    lane = tl.arange(0, BLOCK)
    parts = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        parts += fetch(g_row, first + lane, n_cols, 0.0) * fetch(y_row, first + lane, n_cols, 0.0)
    share = tl.sum(parts, axis=0)
    for first in range(0, n_cols, BLOCK):
        g = fetch(g_row, first + lane, n_cols, 0.0)
        y = fetch(y_row, first + lane, n_cols, 0.0)
        put(dx_row, first + lane, n_cols, y * (g - share))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of the rows of x."""
    rows, cols = x.shape
    y = x.new_empty((rows, cols)) if out is None else out
    rows_forward[(rows,)](x, y, cols, x.stride(0), y.stride(0), num_warps=warps({"n_cols": cols}))
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The gradient for x, from the gradient dy for the result y."""
    rows, cols = y.shape
    dx = dy.new_empty((rows, cols)) if out is None else out
    rows_backward[(rows,)](
        dy, y, dx, cols, dy.stride(0), y.stride(0), dx.stride(0), num_warps=2 * warps({"n_cols": cols})
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
    """Both directions together."""

    @staticmethod
    def forward(ctx, x):
        """Softmax of x, kept for backward."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """One gradient, for x."""
        (y,) = ctx.saved_tensors
        return softmax_backward(y, dy.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    """softmax_forward with a gradient."""
    return OnlineSoftmax.apply(x)
