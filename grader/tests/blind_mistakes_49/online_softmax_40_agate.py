# labs/lab2_online_softmax/online_softmax.py | error | `OnlineSoftmax.forward(ctx, x, width)` takes two arguments, but `OnlineSoftmax.backward` has `return dx`; it should be `return dx, None`. Autograd raises a RuntimeError on the number of gradients (expected 2, got 1) in backward of every case of the differentiable softmax; softmax_forward and softmax_backward are right.
"""Online softmax and its gradient; a row that fits one block is read only once."""

import torch
import triton
import triton.language as tl

WIDTH = 8192


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, ONE: tl.constexpr):
    """Softmax of row i in program i; ONE says that a row is one block."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_ptr += row * stride_x
    y_ptr += row * stride_y
    cols = tl.arange(0, BLOCK)
    if ONE:
        x = tl.load(x_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            x = tl.load(x_ptr + start + cols, mask=mask, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) / d
            tl.store(y_ptr + start + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


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
    ONE: tl.constexpr,
):
    """dx = y * (dy - sum of y * dy) for row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_ptr += row * stride_dy
    y_ptr += row * stride_y
    dx_ptr += row * stride_dx
    cols = tl.arange(0, BLOCK)
    if ONE:
        dy = tl.load(dy_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        dx = y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            dy = tl.load(dy_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            mask = start + cols < n_cols
            dy = tl.load(dy_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
            y = tl.load(y_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
            dx = y * (dy - s)
            tl.store(dx_ptr + start + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def launch_forward(x: torch.Tensor, y: torch.Tensor, width: int):
    """y from x, in blocks of at most width columns."""
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), width)
    forward_kernel[(n_rows,)](
        x,
        y,
        n_cols,
        x.stride(0),
        y.stride(0),
        BLOCK=block,
        ONE=n_cols <= block,
        num_warps=max(1, block // 1024),
    )


def launch_backward(dy: torch.Tensor, y: torch.Tensor, dx: torch.Tensor, width: int):
    """dx from dy and y, in blocks of at most width columns."""
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), width)
    backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        ONE=n_cols <= block,
        num_warps=max(2, block // 512),
    )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    launch_forward(x, out, WIDTH)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    launch_backward(dy, y, out, WIDTH)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax in blocks of a chosen width, which its gradient keeps to."""

    @staticmethod
    def forward(ctx, x, width):
        """y from x."""
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        launch_forward(x, y, width)
        ctx.save_for_backward(y)
        ctx.width = width
        return y

    @staticmethod
    def backward(ctx, dy):
        """dx from dy."""
        (y,) = ctx.saved_tensors
        dx = torch.empty(y.shape, dtype=y.dtype, device=y.device)
        launch_backward(dy.contiguous(), y, dx, ctx.width)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x, WIDTH)
