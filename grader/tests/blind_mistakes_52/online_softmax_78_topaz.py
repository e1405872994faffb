# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_backward`, `out = y.new_empty_strided(y.shape, y.stride())` returns a matrix with the row stride of y where no `out` is given; the README asks for a new contiguous matrix, e.g. `y.new_empty(y.shape)`. Shows when softmax_backward is called without out and with a padded y; the numbers are right.
"""Softmax and gradient. The second sweep goes from the end of a row to its start: the end is still in the cache."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_there_and_back(x_ptr, y_ptr, n_cols, pitch_x, pitch_y, CHUNK: tl.constexpr):
    """There: maximum and sum of a row. Back: its softmax."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * pitch_x
    y_row = y_ptr + row * pitch_y
    chunks = tl.cdiv(n_cols, CHUNK)

    # A finite start: also after a chunk of -inf alone, x - best is -inf and not NaN.
    best = -3.0e38
    weight = 0.0
    for k in range(chunks):
        cols = k * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        better = tl.maximum(best, tl.max(x, axis=0))
        weight = weight * tl.exp(best - better) + tl.sum(tl.exp(x - better), axis=0)
        best = better

    for k in range(chunks):
        cols = (chunks - 1 - k) * CHUNK + tl.arange(0, CHUNK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - best) / weight
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_there_and_back(
    dy_ptr, y_ptr, dx_ptr, n_cols, pitch_dy, pitch_y, pitch_dx, CHUNK: tl.constexpr
):
    """There: sum of dy * y. Back: dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * pitch_dy
    y_row = y_ptr + row * pitch_y
    dx_row = dx_ptr + row * pitch_dx
    chunks = tl.cdiv(n_cols, CHUNK)

    sums = tl.zeros((CHUNK,), dtype=tl.float32)
    for k in range(chunks):
        cols = k * CHUNK + tl.arange(0, CHUNK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        sums += dy * y
    mean = tl.sum(sums, axis=0)  # of dy, with the weights y

    for k in range(chunks):
        cols = (chunks - 1 - k) * CHUNK + tl.arange(0, CHUNK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row + cols, (y * (dy - mean)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def chunk_of(n_cols: int) -> int:
    """Columns for one turn of a loop."""
    return min(triton.next_power_of_2(n_cols), 4096)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax of each row of x; rows of x and of out may lie apart."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty(x.shape)
    chunk = chunk_of(n_cols)
    softmax_there_and_back[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), CHUNK=chunk, num_warps=min(max(chunk // 1024, 1), 4)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax; rows of dy, y and out may lie apart."""
    n_rows, n_cols = y.shape
    if out is None:
        out = y.new_empty_strided(y.shape, y.stride())
    chunk = chunk_of(n_cols)
    gradient_there_and_back[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        CHUNK=chunk,
        num_warps=min(max(chunk // 512, 2), 8),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The pair of functions above."""

    @staticmethod
    def forward(ctx, x):
        """Softmax of x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Gradient for x."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax of each row of x."""
    return OnlineSoftmax.apply(x)
