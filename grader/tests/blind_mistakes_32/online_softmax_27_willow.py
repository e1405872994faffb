# labs/lab2_online_softmax/online_softmax.py | corner | OnlineSoftmax.backward copies dy only where `dy.stride(0) < dy.size(1)`: that catches expanded and transposed gradients, but not one whose rows are far enough apart and whose columns are not neighbours, as every second column of a wider matrix; there the kernel reads the columns between them, and dx of softmax() is wrong. It should ask for the column stride (`dy.stride(1) != 1`), or always call `dy.contiguous()`
"""Online softmax and its gradient, one row for each program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(axis=0).to(tl.int64)
    xs = x_ptr + i * stride_x
    ys = y_ptr + i * stride_y
    m = -float("inf")
    d = 0.0
    for j in range(0, n_cols, BLOCK):
        c = j + tl.arange(0, BLOCK)
        x = tl.load(xs + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        # exp(-inf) is 0 whatever the shift: 0 for as long as there is no finite value.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    scale = 1.0 / d
    for j in range(0, n_cols, BLOCK):
        c = j + tl.arange(0, BLOCK)
        x = tl.load(xs + c, mask=c < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) * scale
        tl.store(ys + c, y.to(y_ptr.dtype.element_ty), mask=c < n_cols)


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
    i = tl.program_id(axis=0).to(tl.int64)
    dys = dy_ptr + i * stride_dy
    ys = y_ptr + i * stride_y
    dxs = dx_ptr + i * stride_dx
    s = 0.0
    for j in range(0, n_cols, BLOCK):
        c = j + tl.arange(0, BLOCK)
        dy = tl.load(dys + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(ys + c, mask=c < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(dy * y, axis=0)
    for j in range(0, n_cols, BLOCK):
        c = j + tl.arange(0, BLOCK)
        dy = tl.load(dys + c, mask=c < n_cols, other=0.0).to(tl.float32)
        y = tl.load(ys + c, mask=c < n_cols, other=0.0).to(tl.float32)
        tl.store(dxs + c, ((dy - s) * y).to(dx_ptr.dtype.element_ty), mask=c < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def plan(n_cols: int, widest: int, per_warp: int, most: int):
    """Width of a block, and how many warps work on it."""
    block = min(triton.next_power_of_2(n_cols), widest)
    return block, clamp(block // per_warp, 1, most)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    block, warps = plan(n_cols, FORWARD_BLOCK, 1024, 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input; the columns of dy and y are contiguous."""
    if out is None:
        out = y.new_empty(y.shape)
    n_rows, n_cols = y.shape
    block, warps = plan(n_cols, BACKWARD_BLOCK, 512, 16)
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
        if dy.stride(0) < dy.size(1):
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
