# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) online_softmax_kernel, `d = d0 + d1 * tl.exp(m1 - m0)`: the two partial sums are merged relative to m0 instead of the common maximum m, so rows of more than one block (more than 8192 columns) whose odd blocks hold the maximum come out too small by exp(m0 - m1), or 0; right: d0 * exp(m0 - m) + d1 * exp(m1 - m). (2) online_softmax_kernel, `last = n_cols // BLOCK * BLOCK`: the second sweep, which runs backwards, starts one block too far right where n_cols is a multiple of BLOCK (1, 2, 4, 128, 4096, ..., 24576, 131072 columns), so the first block of each row is never written (all of it in rows of one block); right: (n_cols - 1) // BLOCK * BLOCK
"""Softmax over rows of any length, with two independent chains of the online recurrence, and its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def fetch(row_ptr, cols, n_cols, fill):
    """The columns of one row as fp32, `fill` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, value):
    tl.store(row_ptr + cols, value.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def fold(m, d, x):
    """m and d of what came before, and of the block x."""
    peak = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(peak == -float("inf"), 0.0, peak)
    total = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return peak, total


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Row i by program i: even blocks into (m0, d0), odd ones into (m1, d1), so that neither waits for the other."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m0 = -float("inf")
    m1 = -float("inf")
    d0 = 0.0
    d1 = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        even = fetch(x_row, start + lanes, n_cols, -float("inf"))
        odd = fetch(x_row, start + BLOCK + lanes, n_cols, -float("inf"))
        m0, d0 = fold(m0, d0, even)
        m1, d1 = fold(m1, d1, odd)
    m = tl.maximum(m0, m1)
    d = d0 + d1 * tl.exp(m1 - m0)

    # Backwards: the end of the row was read last, and is still in the cache.
    last = n_cols // BLOCK * BLOCK
    for back in range(0, n_cols, BLOCK):
        cols = last - back + lanes
        x = fetch(x_row, cols, n_cols, -float("inf"))
        put(y_row, cols, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = fetch(dy_row, start + lanes, n_cols, 0.0)
        y = fetch(y_row, start + lanes, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = fetch(dy_row, start + lanes, n_cols, 0.0)
        y = fetch(y_row, start + lanes, n_cols, 0.0)
        put(dx_row, start + lanes, n_cols, y * (dy - s))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 1024, 1, 8)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 4, 16)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=block, num_warps=warps)
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
