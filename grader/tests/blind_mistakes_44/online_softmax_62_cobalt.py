# labs/lab2_online_softmax/online_softmax.py | corner | In `softmax_forward`, `packed = x.is_contiguous()` looks at x alone, yet PACKED makes the kernel step through out with n_cols, too (`y_row_ptr = y_ptr + row * n_cols`); it should ask for `out.is_contiguous()` as well. It shows where x is contiguous and out is padded or has rows far apart, with more than one row; where x is padded, too, it is right.
"""Softmax over rows of any length, unrolled by two blocks, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 8192


@triton.jit
def fold(x, m, d):
    """Maximum and sum after one more block; a block of -inf alone changes neither."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, PACKED: tl.constexpr, BLOCK: tl.constexpr
):
    """Program i owns row i, and takes two blocks a turn; PACKED: the rows have no space between them."""
    row = tl.program_id(axis=0).to(tl.int64)
    if PACKED:
        x_row_ptr = x_ptr + row * n_cols
        y_row_ptr = y_ptr + row * n_cols
    else:
        x_row_ptr = x_ptr + row * stride_x
        y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, 2 * BLOCK):
        left = start + tl.arange(0, BLOCK)
        right = left + BLOCK
        a = tl.load(x_row_ptr + left, mask=left < n_cols, other=-float("inf")).to(tl.float32)
        b = tl.load(x_row_ptr + right, mask=right < n_cols, other=-float("inf")).to(tl.float32)
        m, d = fold(a, m, d)
        m, d = fold(b, m, d)
    scale = 1.0 / d
    for start in range(0, n_cols, 2 * BLOCK):
        for half in tl.static_range(2):
            cols = start + half * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
            y = tl.exp(x - m) * scale
            tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    dx_row_ptr = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n_rows, n_cols = x.shape
    packed = x.is_contiguous()
    block = clamp(triton.next_power_of_2(triton.cdiv(n_cols, 2)), 16, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x,
        out,
        n_cols,
        x.stride(0),
        out.stride(0),
        PACKED=packed,
        BLOCK=block,
        num_warps=clamp(block // 512, 1, 8),
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 16, BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 16),
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
