# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | softmax_backward_kernel multiplies the gradient by ln 2 in both branches (`LN2 * y * (dy - s)`), as if the forward function were 2^x; but the forward pass computes exp2((x - m) * log2(e)) = exp(x - m), whose inner factor log2(e) cancels ln 2. dx is 0.693 times what it should be in softmax_backward and in the gradient of softmax, in all cases (a single column, with dx = 0, hides it); it should be y * (dy - s).
"""Softmax in base 2: exp2 is the instruction that the hardware has. Short rows stay in registers."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 8192


@triton.jit
def load_row_part(row_ptr, cols, n_cols, other):
    """The columns `cols` of a row in fp32, and `other` where there are none."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    FITS: tl.constexpr,  # whether one block holds the whole row
):
    LOG2E: tl.constexpr = 1.4426950408889634
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)
    if FITS:
        x = load_row_part(x_row, lane, n_cols, -float("inf"))
        e = tl.exp2((x - tl.max(x, axis=0)) * LOG2E)
        y = e / tl.sum(e, axis=0)
        tl.store(y_row + lane, y.to(y_ptr.dtype.element_ty), mask=lane < n_cols)
    else:
        m = -float("inf")
        d = 0.0
        for start in range(0, n_cols, BLOCK):
            x = load_row_part(x_row, start + lane, n_cols, -float("inf"))
            m_new = tl.maximum(m, tl.max(x, axis=0))
            shift = tl.where(m_new == -float("inf"), 0.0, m_new)
            d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
            m = m_new
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            x = load_row_part(x_row, cols, n_cols, -float("inf"))
            y = tl.exp2((x - m) * LOG2E) / d
            tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


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
    FITS: tl.constexpr,
):
    LN2: tl.constexpr = 0.6931471805599453
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)
    if FITS:
        dy = load_row_part(dy_row, lane, n_cols, 0.0)
        y = load_row_part(y_row, lane, n_cols, 0.0)
        dx = LN2 * y * (dy - tl.sum(y * dy, axis=0))
        tl.store(dx_row + lane, dx.to(dx_ptr.dtype.element_ty), mask=lane < n_cols)
    else:
        s = 0.0
        for start in range(0, n_cols, BLOCK):
            dy = load_row_part(dy_row, start + lane, n_cols, 0.0)
            y = load_row_part(y_row, start + lane, n_cols, 0.0)
            s += tl.sum(y * dy, axis=0)
        for start in range(0, n_cols, BLOCK):
            cols = start + lane
            dy = load_row_part(dy_row, cols, n_cols, 0.0)
            y = load_row_part(y_row, cols, n_cols, 0.0)
            dx = LN2 * y * (dy - s)
            tl.store(dx_row + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def block_for(n_cols: int, widest: int):
    """The width of a block, and whether it holds a row of n_cols columns."""
    block = clamp(triton.next_power_of_2(n_cols), 16, widest)
    return block, n_cols <= block


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block, fits = block_for(n_cols, FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](
        x, y, n_cols, x.stride(0), y.stride(0), BLOCK=block, FITS=fits, num_warps=warps
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    dx = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block, fits = block_for(n_cols, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        FITS=fits,
        num_warps=clamp(block // 512, 4, 16),
    )
    return dx


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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
