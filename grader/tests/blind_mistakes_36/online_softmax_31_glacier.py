# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward, launch: the kernel takes y first and dy second, but it is launched with `dy, y` and their strides in this order, so each stands in the other's place and dx is dy * (y - s) where y * (dy - s) belongs; wrong in softmax_backward and in the gradient of softmax for every size, dtype and stride (each matrix is stepped through with its own stride, so nothing goes out of bounds); the launch should pass y, dy, out and y.stride(0), dy.stride(0), out.stride(0)
"""Online softmax after Milakov and Gimelshein, with its gradient."""

import torch
import triton
import triton.language as tl

MAX_BLOCK = {"forward": 16384, "backward": 8192}


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    stride_x,
    stride_y,
    n_cols,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_cols = x_ptr + row * stride_x + tl.arange(0, BLOCK)
    y_cols = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    left = tl.arange(0, BLOCK)

    m = -float("inf")
    d = 0.0
    for done in range(0, n_cols, BLOCK):
        x = tl.load(x_cols + done, mask=left + done < n_cols, other=-float("inf")).to(tl.float32)
        m_old = m
        m = tl.maximum(m_old, tl.max(x, axis=0))
        zero_point = tl.where(m == -float("inf"), 0.0, m)
        d = tl.exp(m_old - zero_point) * d + tl.sum(tl.exp(x - zero_point), axis=0)

    for done in range(0, n_cols, BLOCK):
        x = tl.load(x_cols + done, mask=left + done < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_cols + done, y.to(y_ptr.dtype.element_ty), mask=left + done < n_cols)


@triton.jit
def softmax_backward_kernel(
    y_ptr,
    dy_ptr,
    dx_ptr,
    stride_y,
    stride_dy,
    stride_dx,
    n_cols,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    y_cols = y_ptr + row * stride_y + tl.arange(0, BLOCK)
    dy_cols = dy_ptr + row * stride_dy + tl.arange(0, BLOCK)
    dx_cols = dx_ptr + row * stride_dx + tl.arange(0, BLOCK)
    left = tl.arange(0, BLOCK)

    s = 0.0
    for done in range(0, n_cols, BLOCK):
        y = tl.load(y_cols + done, mask=left + done < n_cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_cols + done, mask=left + done < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for done in range(0, n_cols, BLOCK):
        y = tl.load(y_cols + done, mask=left + done < n_cols, other=0.0).to(tl.float32)
        dy = tl.load(dy_cols + done, mask=left + done < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_cols + done, dx.to(dx_ptr.dtype.element_ty), mask=left + done < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK["forward"])
    online_softmax_kernel[(n_rows,)](
        x, out, x.stride(0), out.stride(0), n_cols, BLOCK=block, num_warps=8 if block > 8192 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), MAX_BLOCK["backward"])
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        n_cols,
        BLOCK=block,
        num_warps=16 if block > 4096 else 8,
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
