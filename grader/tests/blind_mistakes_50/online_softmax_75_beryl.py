# labs/lab2_online_softmax/online_softmax.py | contract | In `OnlineSoftmax.backward`, `return softmax_backward(gradient, y, out=gradient)` writes dx into `gradient = dy.contiguous()`, which is dy itself where dy is contiguous: the incoming gradient is changed, but inputs are read-only. It should be `softmax_backward(gradient, y)`. The values of dx are right; it shows in softmax with any contiguous dy, not with an expanded, transposed, spread or padded one.
"""Softmax over rows, its gradient, and both as an autograd function; rows of one block are a case of their own."""

import torch
import triton
import triton.language as tl

FORWARD_WIDEST = 16384
BACKWARD_WIDEST = 16384


@triton.jit
def row_at(ptr, stride):
    """Start of the row that this program owns."""
    return ptr + tl.program_id(axis=0).to(tl.int64) * stride


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, SINGLE: tl.constexpr):
    x_row = row_at(x_ptr, stride_x)
    y_row = row_at(y_ptr, stride_y)
    cols = tl.arange(0, BLOCK)
    if SINGLE:
        inside = cols < n_cols
        x = tl.load(x_row + cols, mask=inside, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_row + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=inside)
    else:
        m = -float("inf")
        d = 0.0
        for start in tl.range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            x = tl.load(x_row + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in tl.range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            x = tl.load(x_row + start + cols, mask=inside, other=-float("inf")).to(tl.float32)
            tl.store(y_row + start + cols, (tl.exp(x - m) / d).to(y_ptr.dtype.element_ty), mask=inside)


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
    SINGLE: tl.constexpr,
):
    dy_row = row_at(dy_ptr, stride_dy)
    y_row = row_at(y_ptr, stride_y)
    dx_row = row_at(dx_ptr, stride_dx)
    cols = tl.arange(0, BLOCK)
    if SINGLE:
        inside = cols < n_cols
        dy = tl.load(dy_row + cols, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(y_row + cols, mask=inside, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(dy * y, axis=0))
        tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=inside)
    else:
        s = 0.0
        for start in tl.range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            s += tl.sum(dy * y, axis=0)
        for start in tl.range(0, n_cols, BLOCK):
            inside = start + cols < n_cols
            dy = tl.load(dy_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            y = tl.load(y_row + start + cols, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx_row + start + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=inside)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), with any distance between rows of x and out."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_WIDEST)
    forward_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        SINGLE=n_cols <= block,
        num_warps=min(max(block // 2048, 4), 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_WIDEST)
    backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        SINGLE=n_cols <= block,
        num_warps=min(max(block // 512, 4), 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        gradient = dy.contiguous()
        return softmax_backward(gradient, y, out=gradient)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
