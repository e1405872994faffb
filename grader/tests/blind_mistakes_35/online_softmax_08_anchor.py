# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In online_softmax_kernel each lane keeps a maximum and a sum of its own, and after the first loop the sums of the lanes are added as they are: d_row = tl.sum(d), though each is relative to the maximum of its lane. So d_row is too large and each row sums to less than 1 (in a row of one block d_row is simply the number of columns). Right only where all lanes have the same maximum (one column, constant rows). Should be tl.sum(d * tl.exp(m - m_row)).
"""Softmax of long rows: every lane runs the online recurrence on its own columns, one reduction at the end."""

import torch
import triton
import triton.language as tl

LANES = 4096


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = softmax of x[i, :]; lane k sees columns k, k + BLOCK, k + 2 * BLOCK, ..."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lane = tl.arange(0, BLOCK)

    m = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    d = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        live = start + lane < n_cols
        x = tl.load(x_row + start + lane, mask=live, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, x)
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.exp(x - shift)
        m = m_new

    # No reduction inside the loop: this pair is the only one of the first sweep.
    m_row = tl.max(m, axis=0)
    d_row = tl.sum(d, axis=0)

    for start in range(0, n_cols, BLOCK):
        live = start + lane < n_cols
        x = tl.load(x_row + start + lane, mask=live, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m_row) / d_row
        tl.store(y_row + start + lane, y.to(y_ptr.dtype.element_ty), mask=live)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - s); every lane adds its own products to s."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lane = tl.arange(0, BLOCK)

    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        live = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=live, other=0.0).to(tl.float32)
        part += dy * y
    s = tl.sum(part, axis=0)

    for start in range(0, n_cols, BLOCK):
        live = start + lane < n_cols
        dy = tl.load(dy_row + start + lane, mask=live, other=0.0).to(tl.float32)
        y = tl.load(y_row + start + lane, mask=live, other=0.0).to(tl.float32)
        tl.store(dx_row + start + lane, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=live)


def lanes_for(n_cols: int) -> int:
    """Lanes of a program, a power of two."""
    return min(triton.next_power_of_2(n_cols), LANES)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x."""
    if out is None:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=lanes_for(n_cols), num_warps=8
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input."""
    if out is None:
        out = torch.empty_like(dy, memory_format=torch.contiguous_format)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=lanes_for(n_cols),
        num_warps=8,
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
        if not dy.is_contiguous():
            dy = dy.contiguous()
        return softmax_backward(dy, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
