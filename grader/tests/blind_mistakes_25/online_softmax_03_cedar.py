# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | OnlineSoftmax.backward, `softmax_backward(y, grad)`: the two arguments are swapped, so the gradient of softmax() is dy * (y - s) in place of y * (dy - s), wrong in nearly every case of softmax(); it should be softmax_backward(grad, y). softmax_forward and softmax_backward themselves are right.
"""Softmax of rows with a fixed number of programs: each program takes every n-th row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096
MOST_PROGRAMS = 2112  # 16 for each SM of an H200


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program p computes rows p, p + P, p + 2 P, ..., where P is the number of programs."""
    step = tl.num_programs(0)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        src = x_ptr + row * stride_x
        dst = y_ptr + row * stride_y
        top = -float("inf")
        total = 0.0
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            here = tl.max(x, axis=0)
            # Only a larger maximum makes it necessary to touch the old sum.
            if here > top:
                total = total * tl.exp(top - here)
                top = here
            # Nothing to add while all columns are -inf.
            if top > -float("inf"):
                total = total + tl.sum(tl.exp(x - top), axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(src + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            result = tl.exp(x - top) / total
            tl.store(dst + cols, result.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
        row += step


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx = y * (dy - sum(y * dy)), rows as in the forward kernel."""
    step = tl.num_programs(0)
    row = tl.program_id(0).to(tl.int64)
    while row < n_rows:
        dy_row = dy_ptr + row * stride_dy
        y_row = y_ptr + row * stride_y
        dx_row = dx_ptr + row * stride_dx
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            acc += dy * y
        s = tl.sum(acc, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
        row += step


def geometry(shape, widest: int):
    """Number of programs, width of a block, number of warps."""
    n_rows, n_cols = shape
    block = min(widest, triton.next_power_of_2(n_cols))
    return min(n_rows, MOST_PROGRAMS), block, max(1, min(8, block // 512))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    programs, block, warps = geometry(x.shape, FORWARD_BLOCK)
    online_softmax_kernel[(programs,)](
        x, out, x.shape[0], x.shape[1], x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient for the input of softmax."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    programs, block, warps = geometry(dy.shape, BACKWARD_BLOCK)
    softmax_backward_kernel[(programs,)](
        dy,
        y,
        out,
        dy.shape[0],
        dy.shape[1],
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=warps,
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
        y = ctx.saved_tensors[0]
        grad = dy.contiguous()  # sum() hands over an expanded number
        return softmax_backward(y, grad)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
