# lab2/online_softmax.py | two | (1) forward_row: m starts at -1e4 (LOW) and lanes past the end get -1e4 instead of -inf, so a row whose values all lie below -1e4 keeps m = -1e4 and every exp vanishes, 0 / 0; (2) backward_row: s = tl.sum(...) overwrites the sum in every turn of the loop instead of adding to it, so s is the sum of the last block only | (1) "start at -inf" / "m the maximum of the row", rows entirely below about -10087; (2) "s runs over the whole row, over all blocks", softmax_backward and the gradient for rows longer than 512
"""Online softmax, one program per row."""

import torch
import triton
import triton.language as tl

WIDTH = 512
LOW = tl.constexpr(-1.0e4)


@triton.jit
def forward_row(x_ptr, y_ptr, n_cols, stride_x, stride_y, WIDTH: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64)
    running_max = LOW
    running_sum = 0.0
    for c in tl.range(0, n_cols, WIDTH):
        cols = c + tl.arange(0, WIDTH)
        inside = cols < n_cols
        x = tl.load(x_ptr + i * stride_x + cols, mask=inside, other=LOW).to(tl.float32)
        new_max = tl.maximum(running_max, tl.max(x, axis=0))
        e = tl.where(inside, tl.exp(x - new_max), 0.0)
        running_sum = running_sum * tl.exp(running_max - new_max) + tl.sum(e, axis=0)
        running_max = new_max
    for c in tl.range(0, n_cols, WIDTH):
        cols = c + tl.arange(0, WIDTH)
        inside = cols < n_cols
        x = tl.load(x_ptr + i * stride_x + cols, mask=inside, other=LOW).to(tl.float32)
        e = tl.exp(x - running_max) / running_sum
        tl.store(y_ptr + i * stride_y + cols, e.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def backward_row(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WIDTH: tl.constexpr):
    i = tl.program_id(axis=0).to(tl.int64)
    s = 0.0
    for c in tl.range(0, n_cols, WIDTH):
        cols = c + tl.arange(0, WIDTH)
        inside = cols < n_cols
        dy = tl.load(dy_ptr + i * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
        s = tl.sum(dy * y, axis=0)
    for c in tl.range(0, n_cols, WIDTH):
        cols = c + tl.arange(0, WIDTH)
        inside = cols < n_cols
        dy = tl.load(dy_ptr + i * stride_dy + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i * stride_y + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(dx_ptr + i * stride_dx + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    rows, cols = x.shape
    forward_row[(rows,)](x, out, cols, x.stride(0), out.stride(0), WIDTH=WIDTH)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    rows, cols = y.shape
    backward_row[(rows,)](dy, y, out, cols, dy.stride(0), y.stride(0), out.stride(0), WIDTH=WIDTH)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """The two functions above, tied together."""

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
    return OnlineSoftmax.apply(x)
