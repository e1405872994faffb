# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `OnlineSoftmax.backward` `return softmax_backward(y, dy.contiguous())` has the arguments exchanged, so the gradient is dy * (y - s); it should be `softmax_backward(dy.contiguous(), y)`. Shows in dx of all cases of the differentiable softmax; softmax_forward and softmax_backward themselves are right.
"""Online softmax and its gradient with block pointers that are advanced along the row."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_blocks(ptr, row, stride, n_cols, BLOCK: tl.constexpr):
    """Block pointer to the first BLOCK columns of a row."""
    return tl.make_block_ptr(
        base=ptr + row * stride,
        shape=(n_cols,),
        strides=(1,),
        offsets=(0,),
        block_shape=(BLOCK,),
        order=(0,),
    )


@triton.jit
def forward_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of one row for each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    peak = -float("inf")
    mass = 0.0
    x_blocks = row_blocks(x_ptr, row, stride_x, n_cols, BLOCK)
    for start in range(0, n_cols, BLOCK):
        x = tl.load(x_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        x = tl.where(start + lanes < n_cols, x, -float("inf"))
        new_peak = tl.maximum(peak, tl.max(x, axis=0))
        shift = tl.where(new_peak == -float("inf"), 0.0, new_peak)
        mass = mass * tl.exp(peak - shift) + tl.sum(tl.exp(x - shift), axis=0)
        peak = new_peak
        x_blocks = tl.advance(x_blocks, (BLOCK,))
    x_blocks = row_blocks(x_ptr, row, stride_x, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, row, stride_y, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        x = tl.load(x_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.exp(x - peak) / mass
        tl.store(y_blocks, y.to(y_ptr.dtype.element_ty), boundary_check=(0,))
        x_blocks = tl.advance(x_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))


@triton.jit
def backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx = y * (dy - sum of y * dy) for one row in each program."""
    row = tl.program_id(axis=0).to(tl.int64)
    overlap = 0.0
    dy_blocks = row_blocks(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, row, stride_y, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        overlap += tl.sum(y * dy, axis=0)
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))
    dy_blocks = row_blocks(dy_ptr, row, stride_dy, n_cols, BLOCK)
    y_blocks = row_blocks(y_ptr, row, stride_y, n_cols, BLOCK)
    dx_blocks = row_blocks(dx_ptr, row, stride_dx, n_cols, BLOCK)
    for _ in range(0, n_cols, BLOCK):
        dy = tl.load(dy_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        y = tl.load(y_blocks, boundary_check=(0,), padding_option="zero").to(tl.float32)
        dx = y * (dy - overlap)
        tl.store(dx_blocks, dx.to(dx_ptr.dtype.element_ty), boundary_check=(0,))
        dy_blocks = tl.advance(dy_blocks, (BLOCK,))
        y_blocks = tl.advance(y_blocks, (BLOCK,))
        dx_blocks = tl.advance(dx_blocks, (BLOCK,))


def width(n_cols: int) -> int:
    """Columns that a program takes at a time."""
    return min(triton.next_power_of_2(n_cols), 8192)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = torch.empty_like(x) if out is None else out
    n_rows, n_cols = x.shape
    block = width(n_cols)
    forward_kernel[(n_rows,)](
        x, y, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=max(1, block // 1024)
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    dx = torch.empty_like(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = width(n_cols)
    backward_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=max(2, block // 512),
    )
    return dx


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
        return softmax_backward(y, dy.contiguous())


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
