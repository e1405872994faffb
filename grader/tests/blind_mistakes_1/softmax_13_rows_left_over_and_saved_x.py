# lab2/online_softmax.py | two | (1) softmax_forward: the grid is n_rows // rows, rounded down, so the last n_rows mod rows rows have no program (rows = 8, 4 or 1 by width); (2) OnlineSoftmax.forward saves x, and backward hands x over as if it were the forward result y | (1) "launch one program for each row", matrices with n_cols <= 512 whose number of rows is no multiple of the tile: the last rows of out are unwritten; (2) "The forward result y is all that has to be kept" / "save y", the gradient of softmax() everywhere
"""Softmax with tiles of rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def offsets(row, col, stride):
    return row[:, None] * stride + col[None, :]


@triton.jit
def fwd(x_ptr, y_ptr, n_rows, n_cols, stride_x, stride_y, R: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    m = tl.full((R,), -float("inf"), tl.float32)
    d = tl.zeros((R,), tl.float32)
    for start in range(0, n_cols, C):
        col = start + tl.arange(0, C)
        here = (row < n_rows)[:, None] & (col < n_cols)[None, :]
        x = tl.load(x_ptr + offsets(row, col, stride_x), mask=here, other=-float("inf")).to(tl.float32)
        top = tl.maximum(m, tl.max(x, axis=1))
        ref = tl.where(top == -float("inf"), 0.0, top)
        d = d * tl.exp(m - ref) + tl.sum(tl.exp(x - ref[:, None]), axis=1)
        m = top
    for start in range(0, n_cols, C):
        col = start + tl.arange(0, C)
        here = (row < n_rows)[:, None] & (col < n_cols)[None, :]
        x = tl.load(x_ptr + offsets(row, col, stride_x), mask=here, other=0.0).to(tl.float32)
        y = tl.exp(x - m[:, None]) / d[:, None]
        tl.store(y_ptr + offsets(row, col, stride_y), y.to(y_ptr.dtype.element_ty), mask=here)


@triton.jit
def bwd(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, C):
        col = start + tl.arange(0, C)
        dy = tl.load(dy_ptr + row * stride_dy + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + col, mask=col < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, C):
        col = start + tl.arange(0, C)
        dy = tl.load(dy_ptr + row * stride_dy + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * stride_dx + col, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), 2048)
    rows = 8 if width <= 128 else 4 if width <= 512 else 1
    fwd[(n_rows // rows,)](x, out, n_rows, n_cols, x.stride(0), out.stride(0), R=rows, C=width)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    width = min(triton.next_power_of_2(n_cols), 2048)
    bwd[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), C=width)
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return softmax_forward(x)

    @staticmethod
    def backward(ctx, dy):
        (saved,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), saved)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
