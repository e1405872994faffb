# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In softmax_kernel, m is overwritten with the new maximum before d is rescaled, so the factor exp2((m - shift) * LOG2E) is always 1 and the old sum is not brought to the new scale: rows of more than one block (over 4096 columns) whose maximum rises after the first block are too small in softmax_forward and softmax; the old m should be kept for the factor. (2) softmax_backward passes the strides in the order dy, y, out, while gradient_kernel takes them in the order dx, dy, y like its pointers: wrong rows, and accesses out of bounds, where the row strides of dy, y and out differ and there is more than one row (padded or far rows); it should pass out.stride(0), dy.stride(0), y.stride(0).
"""Online softmax in powers of two, its gradient, and the autograd function of both."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def softmax_kernel(y_ptr, x_ptr, n_cols, stride_y, stride_x, BLOCK: tl.constexpr):
    """exp(a) is exp2(a * LOG2E); the factor comes after the subtraction, where it costs no digits."""
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y

    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m == -float("inf"), 0.0, m)  # a block of -inf alone has no finite maximum
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2E) / d
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_kernel(
    dx_ptr,
    dy_ptr,
    y_ptr,
    n_cols,
    stride_dx,
    stride_dy,
    stride_y,
    BLOCK: tl.constexpr,
):
    """The result comes first, here and in softmax_kernel."""
    row = tl.program_id(axis=0).to(tl.int64)
    dx_row = dx_ptr + row * stride_dx
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of a matrix with contiguous columns."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(FORWARD_BLOCK, triton.next_power_of_2(n_cols))
    softmax_kernel[(n_rows,)](
        out,
        x,
        n_cols,
        out.stride(0),
        x.stride(0),
        BLOCK=block,
        num_warps=4,
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(BACKWARD_BLOCK, triton.next_power_of_2(n_cols))
    gradient_kernel[(n_rows,)](
        out,
        dy,
        y,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward, with softmax_backward for its gradient."""

    @staticmethod
    def forward(ctx, x):
        result = softmax_forward(x)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return softmax_backward(grad.contiguous(), result)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax with a gradient."""
    return OnlineSoftmax.apply(x)
