# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `backward_rows` (softmax_backward) `write(dx_row, cols, n_cols, product - share)` computes y * dy - s; it should be y * (dy - s), that is `product - y * share`. Shows in all cases with more than one column, in softmax_backward and in the gradient of softmax.
"""Online softmax and its gradient, each turn of a loop unrolled to two blocks with accumulators of their own."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
HALF = 2048  # columns in one of the two blocks


@triton.jit
def read(row_ptr, cols, n_cols, absent):
    """These columns of a row in fp32; absent where there are none."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=absent).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, value):
    tl.store(row_ptr + cols, value.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_rows(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Softmax of row i in program i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    top = -float("inf")
    total = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = read(x_row, left, n_cols, -float("inf"))
        b = read(x_row, right, n_cols, -float("inf"))
        new_top = tl.maximum(top, tl.max(tl.maximum(a, b), axis=0))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        mass = tl.exp2((a - shift) * LOG2E) + tl.exp2((b - shift) * LOG2E)
        total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(mass, axis=0)
        top = new_top
    for start in range(0, n_cols, 2 * BLOCK):
        for half in tl.static_range(2):
            cols = start + half * BLOCK + tl.arange(0, BLOCK)
            x = read(x_row, cols, n_cols, -float("inf"))
            write(y_row, cols, n_cols, tl.exp2((x - top) * LOG2E) / total)


@triton.jit
def backward_rows(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """Gradient of row i in program i: y * dy less the share of the sum of y * dy over the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    even = 0.0
    odd = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        even += tl.sum(read(y_row, left, n_cols, 0.0) * read(dy_row, left, n_cols, 0.0), axis=0)
        odd += tl.sum(read(y_row, right, n_cols, 0.0) * read(dy_row, right, n_cols, 0.0), axis=0)
    share = even + odd
    for start in range(0, n_cols, 2 * BLOCK):
        for half in tl.static_range(2):
            cols = start + half * BLOCK + tl.arange(0, BLOCK)
            product = read(y_row, cols, n_cols, 0.0) * read(dy_row, cols, n_cols, 0.0)
            write(dx_row, cols, n_cols, product - share)


def half_of(n_cols: int) -> int:
    """Width of one of the two blocks."""
    return min(max(triton.next_power_of_2(n_cols) // 2, 1), HALF)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    forward_rows[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=half_of(n_cols), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    backward_rows[(n_rows,)](dy, y, out, n_cols, *strides, BLOCK=half_of(n_cols), num_warps=8)
    return out


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
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
