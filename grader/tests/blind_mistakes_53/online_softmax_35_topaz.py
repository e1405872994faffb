# labs/lab2_online_softmax/online_softmax.py | two mistakes | (1) In softmax_backward_kernel `s_right = y_b * dy_b` should be `s_right += y_b * dy_b`: only the last turn's right piece counts, so dx is wrong for rows of more than 4096 columns (more than one turn). (2) In OnlineSoftmax.backward `if dy.stride(1) == 0:` makes only an expanded dy contiguous; it should do so for all (`dy.contiguous()` always, or `dy.stride(1) != 1`). The gradient of softmax() is wrong for a transposed dy and for every second column of a wider one, also for short rows.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

PIECE = 2048  # columns of one load; two of them are in flight


@triton.jit
def read(ptr, cols, n_cols, other):
    return tl.load(ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, PIECE: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; a turn of a loop takes two neighbouring pieces of the row."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    left = tl.arange(0, PIECE)
    right = PIECE + tl.arange(0, PIECE)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * PIECE):
        a = read(x_row_ptr, start + left, n_cols, -float("inf"))
        b = read(x_row_ptr, start + right, n_cols, -float("inf"))
        m_new = tl.maximum(m, tl.max(tl.maximum(a, b), axis=0))
        shift = tl.where(m_new > -float("inf"), m_new, 0.0)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(a - shift) + tl.exp(b - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, 2 * PIECE):
        a = read(x_row_ptr, start + left, n_cols, -float("inf"))
        b = read(x_row_ptr, start + right, n_cols, -float("inf"))
        y_a = (tl.exp(a - m) / d).to(y_ptr.dtype.element_ty)
        y_b = (tl.exp(b - m) / d).to(y_ptr.dtype.element_ty)
        tl.store(y_row_ptr + start + left, y_a, mask=start + left < n_cols)
        tl.store(y_row_ptr + start + right, y_b, mask=start + right < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, PIECE: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s); the sums of the two pieces of a turn grow side by side."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    left = tl.arange(0, PIECE)
    right = PIECE + tl.arange(0, PIECE)
    s_left = tl.zeros([PIECE], tl.float32)
    s_right = tl.zeros([PIECE], tl.float32)
    for start in range(0, n_cols, 2 * PIECE):
        dy_a = read(dy_row_ptr, start + left, n_cols, 0.0)
        dy_b = read(dy_row_ptr, start + right, n_cols, 0.0)
        y_a = read(y_row_ptr, start + left, n_cols, 0.0)
        y_b = read(y_row_ptr, start + right, n_cols, 0.0)
        s_left += y_a * dy_a
        s_right = y_b * dy_b
    s = tl.sum(s_left + s_right, axis=0)
    for start in range(0, n_cols, 2 * PIECE):
        dy_a = read(dy_row_ptr, start + left, n_cols, 0.0)
        dy_b = read(dy_row_ptr, start + right, n_cols, 0.0)
        y_a = read(y_row_ptr, start + left, n_cols, 0.0)
        y_b = read(y_row_ptr, start + right, n_cols, 0.0)
        dx_a = (y_a * (dy_a - s)).to(dx_ptr.dtype.element_ty)
        dx_b = (y_b * (dy_b - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_row_ptr + start + left, dx_a, mask=start + left < n_cols)
        tl.store(dx_row_ptr + start + right, dx_b, mask=start + right < n_cols)


def pieces(n_cols: int) -> int:
    """Half of the next power of two of n_cols: the width of a piece."""
    return min(max(triton.next_power_of_2(n_cols) // 2, 1), PIECE)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    piece = pieces(n_cols)
    warps = max(piece // 512, 1)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), PIECE=piece, num_warps=warps
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = dy.new_empty((n_rows, n_cols))
    piece = pieces(n_cols)
    warps = max(piece // 256, 1)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), PIECE=piece, num_warps=warps
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
        if dy.stride(1) == 0:  # expanded, as by sum()
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
