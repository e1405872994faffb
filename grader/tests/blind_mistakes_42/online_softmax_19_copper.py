# labs/lab2_online_softmax/online_softmax.py | error | Exercise softmax_backward (and softmax): in `softmax_backward_kernel`, `total = 0` is int32 before the loop, and `total += tl.sum(y * dy, axis=0)` makes it fp32 there: Triton does not compile it (loop-carried variable with another type). It should be `total = 0.0`. Shows in all cases wherever the kernel is compiled; the interpreter alone does not see it.
"""Online softmax in two sweeps, with pointers that move along the row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 2048


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y of the row of this program."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    x_first = x_ptr + row * stride_x + cols
    y_at = y_ptr + row * stride_y + cols
    top = -float("inf")
    mass = 0.0
    x_at = x_first
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_at, mask=cols < n_cols - start, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(x, axis=0))
        pivot = tl.where(new_top == -float("inf"), 0.0, new_top)
        mass = mass * tl.exp(top - pivot) + tl.sum(tl.exp(x - pivot), axis=0)
        top = new_top
        x_at += BLOCK
    x_at = x_first
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_at, mask=cols < n_cols - start, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / mass
        tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols - start)
        x_at += BLOCK
        y_at += BLOCK


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx of the row of this program."""
    row = tl.program_id(axis=0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    dy_first = dy_ptr + row * stride_dy + cols
    y_first = y_ptr + row * stride_y + cols
    dx_at = dx_ptr + row * stride_dx + cols
    total = 0
    dy_at = dy_first
    y_at = y_first
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_at, mask=cols < n_cols - start, other=0.0).to(tl.float32)
        y = tl.load(y_at, mask=cols < n_cols - start, other=0.0).to(tl.float32)
        total += tl.sum(y * dy, axis=0)
        dy_at += BLOCK
        y_at += BLOCK
    dy_at = dy_first
    y_at = y_first
    for start in range(0, n_cols, BLOCK):
        dy = tl.load(dy_at, mask=cols < n_cols - start, other=0.0).to(tl.float32)
        y = tl.load(y_at, mask=cols < n_cols - start, other=0.0).to(tl.float32)
        dx = y * (dy - total)
        tl.store(dx_at, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols - start)
        dy_at += BLOCK
        y_at += BLOCK
        dx_at += BLOCK


def plan(x: torch.Tensor, widest: int) -> dict:
    """Columns of a row, width of a block, and number of warps."""
    n_cols = x.shape[1]
    block = min(triton.next_power_of_2(n_cols), widest)
    return {"n_cols": n_cols, "BLOCK": block, "num_warps": min(max(block // 256, 2), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), with any distance between rows."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    online_softmax_kernel[(x.shape[0],)](
        x, out, stride_x=x.stride(0), stride_y=out.stride(0), **plan(x, FORWARD_BLOCK)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and the result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    strides = {"stride_dy": dy.stride(0), "stride_y": y.stride(0), "stride_dx": out.stride(0)}
    softmax_backward_kernel[(dy.shape[0],)](dy, y, out, **strides, **plan(dy, BACKWARD_BLOCK))
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax and its gradient."""

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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
