# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `OnlineSoftmax.backward`, `return softmax_backward(probabilities, grad.contiguous())` has its arguments exchanged; it should be `softmax_backward(grad.contiguous(), probabilities)`. The gradient of `softmax` is dy * (y - s) in all cases; softmax_forward and softmax_backward themselves are right.
"""Softmax, its gradient and the autograd function. Rows of one block stay in registers, longer rows are swept twice."""

import torch
import triton
import triton.language as tl

WIDEST = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def fetch(row_ptr, cols, n_cols, fill: tl.constexpr):
    """Columns of a row in fp32, and `fill` behind its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Round values to the dtype of the row and store them."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE: tl.constexpr):
    """One program, one row. ONE: the row has no more than BLOCK columns."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    if ONE:
        x = fetch(x_row, lanes, n_cols, -float("inf"))
        e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
        put(y_row, lanes, n_cols, e / tl.sum(e, axis=0))
    else:
        top = -float("inf")
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lanes, n_cols, -float("inf"))
            higher = tl.maximum(top, tl.max(x, axis=0))
            shift = tl.where(higher == -float("inf"), 0.0, higher)
            total = total * tl.exp2((top - shift) * LOG2E)
            total += tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
            top = higher
        for start in range(0, n_cols, BLOCK):
            x = fetch(x_row, start + lanes, n_cols, -float("inf"))
            put(y_row, start + lanes, n_cols, tl.exp2((x - top) * LOG2E) / total)


@triton.jit
def backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    ONE: tl.constexpr,
):
    """One program, one row: first the sum of y * dy over the whole of it, then dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    if ONE:
        dy = fetch(dy_row, lanes, n_cols, 0.0)
        y = fetch(y_row, lanes, n_cols, 0.0)
        put(dx_row, lanes, n_cols, y * (dy - tl.sum(y * dy, axis=0)))
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            dy = fetch(dy_row, start + lanes, n_cols, 0.0)
            y = fetch(y_row, start + lanes, n_cols, 0.0)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            dy = fetch(dy_row, start + lanes, n_cols, 0.0)
            y = fetch(y_row, start + lanes, n_cols, 0.0)
            put(dx_row, start + lanes, n_cols, y * (dy - s))


def launch_options(n_cols: int, per_warp: int) -> dict:
    """Width of a block, whether a row fits in it, and one warp for each `per_warp` columns of it."""
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    return {"BLOCK": block, "ONE": n_cols <= block, "num_warps": min(max(block // per_warp, 1), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    result = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    options = launch_options(n_cols, 1024)
    forward_kernel[(n_rows,)](x, result, n_cols, x.stride(0), result.stride(0), **options)
    return result


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    result = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    options = launch_options(n_cols, 512)
    backward_kernel[(n_rows,)](
        dy, y, result, n_cols, dy.stride(0), y.stride(0), result.stride(0), **options
    )
    return result


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above as one differentiable function."""

    @staticmethod
    def forward(ctx, x):
        """The probabilities of x; they are kept for the gradient."""
        probabilities = softmax_forward(x)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, grad):
        """The gradient for x; the kernel wants contiguous columns."""
        (probabilities,) = ctx.saved_tensors
        return softmax_backward(probabilities, grad.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
