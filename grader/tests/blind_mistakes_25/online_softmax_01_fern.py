# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | online_softmax_kernel, `total = tl.sum(d, axis=0)`: each lane's d is relative to that lane's own maximum m, but the sums are added without bringing them to the maximum of the row, so y is too small in nearly every row with more than one finite column (a short row is divided by the number of its finite columns). It should be tl.sum(d * tl.exp(m - top), axis=0).
"""Softmax over rows of any length, its gradient, and both as an autograd function.

Every lane of a block runs the online recurrence for itself, over columns lane, lane + BLOCK, lane + 2 * BLOCK ...
So there is no reduction inside the loop, only after it.
"""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 4096
BACKWARD_BLOCK = 4096


@triton.jit
def fetch(row_ptr, cols, n_cols, fill):
    """Columns `cols` of a row in fp32, and `fill` past its end."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Round values to the dtype of the row and store them."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)  # one maximum for each lane
    d = tl.zeros((BLOCK,), dtype=tl.float32)  # and one sum
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row, start + lanes, n_cols, -float("inf"))
        m_new = tl.maximum(m, x)
        # a lane that has seen only -inf: any finite shift will do
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    # all lanes together: the maximum of the row and the sum of the row
    top = tl.max(m, axis=0)
    total = tl.sum(d, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        x = fetch(x_row, cols, n_cols, -float("inf"))
        put(y_row, cols, n_cols, tl.exp(x - top) / total)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)

    products = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        products += fetch(dy_row, cols, n_cols, 0.0) * fetch(y_row, cols, n_cols, 0.0)
    s = tl.sum(products, axis=0)

    for start in range(0, n_cols, BLOCK):
        cols = start + lanes
        dy = fetch(dy_row, cols, n_cols, 0.0)
        y = fetch(y_row, cols, n_cols, 0.0)
        put(dx_row, cols, n_cols, y * (dy - s))


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = clamp(block // 512, 1, 8)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    warps = clamp(block // 512, 1, 8)
    softmax_backward_kernel[(n_rows,)](
        dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block, num_warps=warps
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
