# labs/lab2_online_softmax/online_softmax.py | right | Two independent states for even and odd blocks, joined after the loop; the second sweep runs from the last block to the first, and a row of one block is cut in two; exp2 with log2(e) after the subtraction. All sentences of the README are kept.
"""Softmax over rows: two chains of blocks on the way out, one on the way back, and its gradient likewise."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def power(difference):
    """exp, in base 2; the factor comes after the subtraction, so that large numbers keep their digits."""
    return tl.exp2(difference * LOG2E)


@triton.jit
def fetch(row_ptr, start, n_cols, other, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def put(row_ptr, start, n_cols, values, BLOCK: tl.constexpr):
    cols = start + tl.arange(0, BLOCK)
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def step(x, m, d):
    """Fold a block into (m, d). A chain that has no finite value yet keeps d = 0."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new > -float("inf"), m_new, 0.0)
    return m_new, d * power(m - shift) + tl.sum(power(x - shift), axis=0)


@triton.jit
def there_and_back_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i.

    The blocks with even numbers and those with odd numbers are folded into two states, which do not wait for
    each other. The second sweep begins with the blocks that were read last, the surest to be in a cache.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    n_blocks = tl.cdiv(n_cols, BLOCK)

    m_even = tl.full((), -float("inf"), dtype=tl.float32)
    m_odd = tl.full((), -float("inf"), dtype=tl.float32)
    d_even = tl.full((), 0.0, dtype=tl.float32)
    d_odd = tl.full((), 0.0, dtype=tl.float32)
    for pair in range(0, n_blocks, 2):
        start = pair * BLOCK
        # The last odd block may lie wholly past the end: all of it is -inf then, and changes nothing.
        even = fetch(x_row, start, n_cols, -float("inf"), BLOCK)
        odd = fetch(x_row, start + BLOCK, n_cols, -float("inf"), BLOCK)
        m_even, d_even = step(even, m_even, d_even)
        m_odd, d_odd = step(odd, m_odd, d_odd)
    m = tl.maximum(m_even, m_odd)
    d = d_even * power(m_even - m) + d_odd * power(m_odd - m)

    for done in range(0, n_blocks):
        start = (n_blocks - 1 - done) * BLOCK
        x = fetch(x_row, start, n_cols, -float("inf"), BLOCK)
        put(y_row, start, n_cols, power(x - m) / d, BLOCK)


@triton.jit
def gradient_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """Program i owns row i; the sum of y * dy is taken in ascending order, dx is stored in descending order."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    n_blocks = tl.cdiv(n_cols, BLOCK)
    s = 0.0
    for block in range(0, n_blocks):
        dy = fetch(dy_row, block * BLOCK, n_cols, 0.0, BLOCK)
        y = fetch(y_row, block * BLOCK, n_cols, 0.0, BLOCK)
        s += tl.sum(dy * y, axis=0)
    for done in range(0, n_blocks):
        start = (n_blocks - 1 - done) * BLOCK
        dy = fetch(dy_row, start, n_cols, 0.0, BLOCK)
        y = fetch(y_row, start, n_cols, 0.0, BLOCK)
        put(dx_row, start, n_cols, y * (dy - s), BLOCK)


def empty_result(x: torch.Tensor) -> torch.Tensor:
    """A new contiguous matrix of the shape and the dtype of x."""
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    y = empty_result(x) if out is None else out
    n_rows, n_cols = x.shape
    # Two blocks are alive at a time, so a row of one block is cut in two.
    block = min(triton.next_power_of_2(triton.cdiv(n_cols, 2)), FORWARD_BLOCK)
    there_and_back_kernel[(n_rows,)](
        x, y, n_cols, x.stride(0), y.stride(0), BLOCK=block, num_warps=8 if block > 2048 else 4
    )
    return y


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    dx = empty_result(dy) if out is None else out
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    gradient_kernel[(n_rows,)](
        dy,
        y,
        dx,
        n_cols,
        dy.stride(0),
        y.stride(0),
        dx.stride(0),
        BLOCK=block,
        num_warps=8 if block > 2048 else 4,
    )
    return dx


class OnlineSoftmax(torch.autograd.Function):
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
