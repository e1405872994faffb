# labs/lab2_online_softmax/online_softmax.py | contract | In `softmax_forward`, `out = torch.empty_strided((n_rows, n_cols), x.stride(), dtype=x.dtype, device=x.device)` gives the result the row stride of x; the README asks for a new contiguous matrix, such as `torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)`. Shows in calls without `out` whose x has padded rows (also through `softmax`): right numbers in a matrix that is not contiguous.
"""Softmax over rows of any length: whole blocks without a mask, then the rest of the row. With its gradient."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def fold(m, d, x):
    """Maximum and sum of a row, with the columns x added to those that m and d stand for."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK  # columns in whole blocks
    rest = lanes < n_cols - whole

    m = -float("inf")
    d = 0.0
    for start in range(0, whole, BLOCK):
        m, d = fold(m, d, tl.load(x_row + start + lanes).to(tl.float32))
    last = tl.load(x_row + whole + lanes, mask=rest, other=-float("inf")).to(tl.float32)
    m, d = fold(m, d, last)

    for start in range(0, whole, BLOCK):
        y = tl.exp(tl.load(x_row + start + lanes).to(tl.float32) - m) / d
        tl.store(y_row + start + lanes, y.to(y_ptr.dtype.element_ty))
    y = tl.exp(last - m) / d
    tl.store(y_row + whole + lanes, y.to(y_ptr.dtype.element_ty), mask=rest)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    whole = n_cols // BLOCK * BLOCK
    rest = lanes < n_cols - whole

    last_dy = tl.load(dy_row + whole + lanes, mask=rest, other=0.0).to(tl.float32)
    last_y = tl.load(y_row + whole + lanes, mask=rest, other=0.0).to(tl.float32)
    s = tl.sum(last_dy * last_y, axis=0)
    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        s += tl.sum(dy * y, axis=0)

    for start in range(0, whole, BLOCK):
        dy = tl.load(dy_row + start + lanes).to(tl.float32)
        y = tl.load(y_row + start + lanes).to(tl.float32)
        tl.store(dx_row + start + lanes, (y * (dy - s)).to(dx_ptr.dtype.element_ty))
    tl.store(dx_row + whole + lanes, (last_y * (last_dy - s)).to(dx_ptr.dtype.element_ty), mask=rest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart; the result goes to `out` where one is given.
    """
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty_strided((n_rows, n_cols), x.stride(), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Rows may be any number of elements apart; the result goes to `out` where one is given.
    """
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=8
    )
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
