# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax with block pointers. A row of a single block stays in registers."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def read(row_ptr, start, n_cols, outside, BLOCK: tl.constexpr):
    """BLOCK columns from `start` in fp32; lanes past the end of the row are `outside`."""
    window = tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    values = tl.load(window, boundary_check=(0,), padding_option="zero").to(tl.float32)
    return tl.where(start + tl.arange(0, BLOCK) < n_cols, values, outside)


@triton.jit
def write(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    """Store BLOCK columns from `start`, without those past the end."""
    window = tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    tl.store(window, values.to(row_ptr.dtype.element_ty), boundary_check=(0,))


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    if WHOLE:
        x = read(x_row, 0, n_cols, -float("inf"), BLOCK)
        e = tl.exp(x - tl.max(x, axis=0))
        write(y_row, 0, n_cols, e / tl.sum(e, axis=0), BLOCK)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = read(x_row, start, n_cols, -float("inf"), BLOCK)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            x = read(x_row, start, n_cols, -float("inf"), BLOCK)
            write(y_row, start, n_cols, tl.exp(x - m) / d, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, WHOLE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    if WHOLE:
        dy = read(dy_row, 0, n_cols, 0.0, BLOCK)
        y = read(y_row, 0, n_cols, 0.0, BLOCK)
        write(dx_row, 0, n_cols, y * (dy - tl.sum(y * dy, axis=0)), BLOCK)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            dy = read(dy_row, start, n_cols, 0.0, BLOCK)
            y = read(y_row, start, n_cols, 0.0, BLOCK)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            dy = read(dy_row, start, n_cols, 0.0, BLOCK)
            y = read(y_row, start, n_cols, 0.0, BLOCK)
            write(dx_row, start, n_cols, y * (dy - s), BLOCK)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), WHOLE=n_cols <= block, BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        WHOLE=n_cols <= block,
        BLOCK=block,
        num_warps=8,
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
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
