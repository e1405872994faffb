# labs/lab2_online_softmax/online_softmax.py | corner | `PAD = -60000.0` is what `fetch` gives to lanes past the end in the forward pass, so in a row that does not fill its block and whose values all lie below or near -60000 these lanes become the maximum or add to the sum; it should be `-float("inf")`.
"""Softmax over rows of any length, with small helpers for loads, stores and the update of the statistics."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384
PAD = tl.constexpr(-60000.0)  # for lanes without a column: exp gives 0, and fp16 can hold it


@triton.jit
def fetch(row_ptr, cols, n_cols, fill):
    """Columns of a row, in fp32."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    """Store columns of a row, in the dtype of the row."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def merge(m, d, x):
    """Maximum and sum with one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = tl.full((), -float("inf"), dtype=tl.float32)
    d = tl.full((), 0.0, dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row, start + lanes, n_cols, PAD)
        m, d = merge(m, d, x)
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row, start + lanes, n_cols, PAD)
        put(y_row, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = tl.full((), 0.0, dtype=tl.float32)
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
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols)."""
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
