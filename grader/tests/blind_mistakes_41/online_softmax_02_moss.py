# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | Exercise softmax_backward (and the gradient of softmax), kernel `softmax_backward_kernel`: the second loop stores `p * g - s`, it should be `p * (g - s)` (the sum is not multiplied by y). Wrong in all cases but rows of one column.
"""Softmax and its gradient with block pointers: bounds are checked by the pointer, one program for each row."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def fetch(row_ptr, start, n_cols, BLOCK: tl.constexpr):
    """BLOCK columns of a row from `start` on, in fp32, and 0 past its end."""
    window = tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    return tl.load(window, boundary_check=(0,), padding_option="zero").to(tl.float32)


@triton.jit
def put(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    """Store BLOCK columns of a row from `start` on, but for those past its end."""
    window = tl.make_block_ptr(
        base=row_ptr, shape=(n_cols,), strides=(1,), offsets=(start,), block_shape=(BLOCK,), order=(0,)
    )
    tl.store(window, values.to(row_ptr.dtype.element_ty), boundary_check=(0,))


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row_ptr, start, n_cols, BLOCK)
        x = tl.where(start + lanes < n_cols, x, -float("inf"))
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row_ptr, start, n_cols, BLOCK)
        put(y_row_ptr, start, n_cols, tl.exp(x - m) / d, BLOCK)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        g = fetch(dy_row_ptr, start, n_cols, BLOCK)
        p = fetch(y_row_ptr, start, n_cols, BLOCK)
        s += tl.sum(p * g, axis=0)
    for start in range(0, n_cols, BLOCK):
        g = fetch(dy_row_ptr, start, n_cols, BLOCK)
        p = fetch(y_row_ptr, start, n_cols, BLOCK)
        put(dx_row_ptr, start, n_cols, p * g - s, BLOCK)


def plan(n_cols: int, widest: int, per_warp: int) -> dict:
    """Width of the blocks and warps of a program for rows of n_cols."""
    block = min(widest, triton.next_power_of_2(n_cols))
    return {"BLOCK": block, "num_warps": min(max(block // per_warp, 1), 16)}


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = x.new_empty(x.shape)
    n_rows, n_cols = x.shape
    options = plan(n_cols, FORWARD_BLOCK, 1024)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), **options)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = dy.new_empty(dy.shape)
    n_rows, n_cols = dy.shape
    options = plan(n_cols, BACKWARD_BLOCK, 512)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), **options
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
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
