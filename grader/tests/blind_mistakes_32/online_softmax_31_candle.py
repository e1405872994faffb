# labs/lab2_online_softmax/online_softmax.py | error | softmax() calls `OnlineSoftmax.apply(x)` under `with torch.no_grad():`, so autograd records nothing: y has no grad_fn, and y.backward(dy) raises in every case of softmax() (softmax_forward, softmax_backward and the methods of OnlineSoftmax are right). It should return OnlineSoftmax.apply(x) without no_grad; inside of forward, autograd records nothing anyway
"""Online softmax, its gradient, and the autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    """Program i owns row i.

    The maximum starts below every finite value of an input, and is itself finite: no difference with it is NaN.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    m = -3.0e38
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride_x + offsets, mask=offsets < n_cols, other=-float("inf"))
        x = x.to(tl.float32)
        above = tl.maximum(m, tl.max(x, axis=0))
        d = d * tl.exp(m - above) + tl.sum(tl.exp(x - above), axis=0)
        m = above
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n_cols
        x = tl.load(x_ptr + row * stride_x + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + row * stride_y + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    weighted = 0.0
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offsets, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offsets, mask=mask, other=0.0).to(tl.float32)
        weighted += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n_cols
        dy = tl.load(dy_ptr + row * stride_dy + offsets, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * stride_y + offsets, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - weighted)
        tl.store(dx_ptr + row * stride_dx + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    assert x.dim() == 2, "x is a matrix"
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    assert dy.shape == y.shape, "dy and y have the same shape"
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 32)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    with torch.no_grad():
        y = OnlineSoftmax.apply(x)
    return y
