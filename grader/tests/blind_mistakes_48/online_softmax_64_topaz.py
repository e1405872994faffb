# labs/lab2_online_softmax/online_softmax.py | corner | In `row_major`, `if matrix.stride(0) >= matrix.shape[1]: return matrix` looks at the stride of the rows only; it should ask for `matrix.stride(1) == 1` (or always take `contiguous()`). The gradient of `softmax` is wrong where dy is every second column of a wider matrix (or a column with large strides, expanded along the columns); contiguous, padded, scalar-expanded and transposed dy are right.
"""Online softmax and its gradient; two blocks of a row are in flight at a time."""

import torch
import triton
import triton.language as tl

BLOCK = 2048
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def block_of(row_ptr, start, n_cols, other: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK columns of a row from `start` on, as fp32."""
    cols = start + tl.arange(0, BLOCK)
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def softmax_row_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Fold two blocks at once into the running maximum and sum, then write the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = block_of(x_row, start, n_cols, -float("inf"), BLOCK)
        right = block_of(x_row, start + BLOCK, n_cols, -float("inf"), BLOCK)
        m_new = tl.maximum(m, tl.max(tl.maximum(left, right), axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        terms = tl.exp2((left - shift) * LOG2E) + tl.exp2((right - shift) * LOG2E)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(terms, axis=0)
        m = m_new
    scale = 1.0 / d  # d is 1 or more
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = tl.exp2((block_of(x_row, start, n_cols, -float("inf"), BLOCK) - m) * LOG2E) * scale
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def gradient_row_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Two sums, of the even and the odd blocks, which are independent of each other; then dx."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    even = 0.0
    odd = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        even += tl.sum(
            block_of(dy_row, start, n_cols, 0.0, BLOCK) * block_of(y_row, start, n_cols, 0.0, BLOCK), axis=0
        )
        after = start + BLOCK
        odd += tl.sum(
            block_of(dy_row, after, n_cols, 0.0, BLOCK) * block_of(y_row, after, n_cols, 0.0, BLOCK), axis=0
        )
    s = even + odd
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = block_of(dy_row, start, n_cols, 0.0, BLOCK)
        y = block_of(y_row, start, n_cols, 0.0, BLOCK)
        tl.store(dx_row + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    softmax_row_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    gradient_row_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


def row_major(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix itself where its rows lie one behind the other, padded or not; else a contiguous copy."""
    if matrix.stride(0) >= matrix.shape[1]:
        return matrix
    return matrix.contiguous()


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
        """dx from dy, without a copy where the kernel can read dy as it is."""
        (y,) = ctx.saved_tensors
        return softmax_backward(row_major(dy), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
