# labs/lab2_online_softmax/online_softmax.py | error | In softmax_forward, `grid = (n_rows)` is an int and not a tuple, so the launch of online_softmax_kernel raises TypeError (an int has no len()); it should be `(n_rows,)`.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384  # the widest blocks whose values stay in registers
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for start in range(0, n_cols, BLOCK):
        offs = tl.arange(0, BLOCK) + start
        mask = offs < n_cols
        xs = tl.load(x_row_ptr + offs, mask=mask, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(m, tl.max(xs, axis=0))
        # -inf - -inf would be nan
        sh = tl.where(new_m == -float("inf"), 0.0, new_m)
        d = d * tl.exp(m - sh) + tl.sum(tl.exp(xs - sh), axis=0)
        m = new_m
    for start in range(0, n_cols, BLOCK):
        offs = tl.arange(0, BLOCK) + start
        mask = offs < n_cols
        xs = tl.load(x_row_ptr + offs, mask=mask, other=-float("inf")).to(tl.float32)
        ys = tl.exp(xs - m) / d
        tl.store(y_row_ptr + offs, ys.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        offs = tl.arange(0, BLOCK) + start
        mask = offs < n_cols
        dys = tl.load(dy_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        ys = tl.load(y_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        s = s + tl.sum(dys * ys, axis=0)
    for start in range(0, n_cols, BLOCK):
        offs = tl.arange(0, BLOCK) + start
        mask = offs < n_cols
        dys = tl.load(dy_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        ys = tl.load(y_row_ptr + offs, mask=mask, other=0.0).to(tl.float32)
        dxs = ys * (dys - s)
        tl.store(dx_row_ptr + offs, dxs.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    # one program per row
    grid = (n_rows)
    online_softmax_kernel[grid](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
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
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
