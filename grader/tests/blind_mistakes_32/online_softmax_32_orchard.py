# labs/lab2_online_softmax/online_softmax.py | right | right
"""Online softmax whose second sweep goes from the end of a row to its start, where the cache is still warm.

The backward kernel takes the distance between two columns of dy, too, so autograd's gradients need no copy.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 4096


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
):
    LOG2_E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    n_blocks = (n_cols + BLOCK - 1) // BLOCK

    m = -float("inf")
    d = 0.0
    for k in range(0, n_blocks):
        cols = k * BLOCK + lanes
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        if top > m:
            # Only now does the scale of d change. The block has a finite value, so top is finite.
            d = d * tl.exp2((m - top) * LOG2_E)
            m = top
        # A block of -inf alone adds 0, whatever finite number is subtracted.
        shift = tl.where(top == -float("inf"), 0.0, m)
        d += tl.sum(tl.exp2((x - shift) * LOG2_E), axis=0)

    for k in range(0, n_blocks):
        cols = (n_blocks - 1 - k) * BLOCK + lanes
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp2((x - m) * LOG2_E) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    step_dy,  # elements from one column of dy to the next
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    n_blocks = (n_cols + BLOCK - 1) // BLOCK

    s = 0.0
    for k in range(0, n_blocks):
        cols = k * BLOCK + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols * step_dy, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)

    for k in range(0, n_blocks):
        cols = (n_blocks - 1 - k) * BLOCK + lanes
        mask = cols < n_cols
        dy = tl.load(dy_row_ptr + cols * step_dy, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_row_ptr + cols, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 1024, 1, 4),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy in any layout and the forward result y."""
    if out is None:
        out = torch.empty(y.shape, dtype=y.dtype, device=y.device)
    n_rows, n_cols = y.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        dy.stride(1),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
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
        if not ctx.needs_input_grad[0]:
            return None
        return softmax_backward(dy, ctx.saved_tensors[0])


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
