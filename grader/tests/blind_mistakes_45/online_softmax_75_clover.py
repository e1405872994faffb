# labs/lab2_online_softmax/online_softmax.py | contract | `softmax_backward`: `out = dy.new_empty_strided(dy.shape, dy.stride())` gives the result the row stride of dy. It should be a new contiguous matrix. The numbers are right; shows where no `out` is given and the rows of dy are padded.
"""Online softmax and its gradient, two blocks of columns in each turn of a loop."""

import torch
import triton
import triton.language as tl

BLOCK = 4096
UNROLL = 2


@triton.jit
def softmax_rows(
    x_ptr, y_ptr, n_cols, x_stride, y_stride, BLOCK: tl.constexpr, UNROLL: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * x_stride
    y_row = y_ptr + row * y_stride
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK * UNROLL):
        for part in tl.static_range(UNROLL):
            cols = start + part * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            top = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(top == -float("inf"), 0.0, top)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = top
    for start in range(0, n_cols, BLOCK * UNROLL):
        for part in tl.static_range(UNROLL):
            cols = start + part * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_rows(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    dy_stride,
    y_stride,
    dx_stride,
    BLOCK: tl.constexpr,
    UNROLL: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * dy_stride
    y_row = y_ptr + row * y_stride
    dx_row = dx_ptr + row * dx_stride
    s = 0.0
    for start in range(0, n_cols, BLOCK * UNROLL):
        for part in tl.static_range(UNROLL):
            cols = start + part * BLOCK + tl.arange(0, BLOCK)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK * UNROLL):
        for part in tl.static_range(UNROLL):
            cols = start + part * BLOCK + tl.arange(0, BLOCK)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def _launch(n_cols: int, columns_per_warp: int) -> dict:
    """Block, unrolling and warps for rows of n_cols: a row of one block is not unrolled."""
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    return {
        "BLOCK": block,
        "UNROLL": UNROLL if n_cols > block else 1,
        "num_warps": min(max(block // columns_per_warp, 1), 8),
    }


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) with contiguous columns."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    softmax_rows[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **_launch(n_cols, 1024))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty_strided(dy.shape, dy.stride())
    gradient_rows[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **_launch(n_cols, 512)
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
