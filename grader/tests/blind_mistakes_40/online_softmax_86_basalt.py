# labs/lab2_online_softmax/online_softmax.py | corner | In the second loop of `row_softmax_kernel`, `y = tl.exp(x - m) * inverse` should be `tl.exp(x - shift) * inverse`, since d is relative to `shift`, which may be up to 8 below m. Shows only in rows of more than 4096 columns where a later block raises the maximum without moving the shift (by at most 8); these rows sum to less than 1.
"""Online softmax whose sum is only brought to a new scale where the maximum has risen far."""

import torch
import triton
import triton.language as tl

WIDTH = 4096
FAR = tl.constexpr(8.0)  # exp(8) is about 3000: sums relative to a shift that is so much too low stay exact


@triton.jit
def row_softmax_kernel(
    x_ptr,  # (n_rows, n_cols), columns contiguous
    y_ptr,  # like x
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """One program for each row.

    The shift of the sum follows the maximum only when that has risen by more than FAR; otherwise blocks are
    added without a factor.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = -float("inf")  # the maximum so far
    shift = -float("inf")  # what d is relative to; at most FAR below m
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m = tl.maximum(m, tl.max(x, axis=0))
        moved = tl.where(m > shift + FAR, m, shift)
        finite = tl.where(moved == -float("inf"), 0.0, moved)
        factor = tl.where(m > shift + FAR, tl.exp(shift - finite), 1.0)
        d = d * factor + tl.sum(tl.exp(x - finite), axis=0)
        shift = moved

    inverse = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * inverse
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def row_gradient_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        inside = start + lanes < n_cols
        dy = tl.load(dy_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lanes, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row + start + lanes, dx.to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    row_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=width, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    width = min(triton.next_power_of_2(n_cols), WIDTH)
    row_gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=width,
        num_warps=8 if width > 2048 else 4,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
