# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel: every lane keeps its own maximum and sum, and at the end the sums are added as they are, `total = tl.sum(d, axis=0)`, though each is relative to the maximum of its own lane. In a row of one block each real lane has d = 1, so total is n_cols and the row sums to less than 1. Wrong in every case but a single column, or rows whose lanes all have the same maximum (constant rows). It should be `tl.sum(d * tl.exp(m - top), axis=0)`.
"""Online softmax with one running maximum and one running sum for each lane."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
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
    """Lane k looks at columns k, k + BLOCK, ...; only after the last block do the lanes come together."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    d = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        # A lane that has seen only -inf would compute -inf - -inf.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    # One reduction per row instead of one per block.
    top = tl.max(m, axis=0)
    total = tl.sum(d, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        x = tl.load(x_row_ptr + col, mask=col < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - top) / total
        tl.store(y_row_ptr + col, y.to(y_ptr.dtype.element_ty), mask=col < n_cols)


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
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    dots = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + lane
        g = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        dots += g * y
    s = tl.sum(dots, axis=0)

    for start in range(0, n_cols, BLOCK):
        col = start + lane
        g = tl.load(dy_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + col, mask=col < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + col, (y * (g - s)).to(dx_ptr.dtype.element_ty), mask=col < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 512, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
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
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
