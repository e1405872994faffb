# labs/lab2_online_softmax/online_softmax.py | contract | In `like`, `torch.empty_strided(x.size(), x.stride(), ...)` gives the result the strides of x; without `out` `softmax_forward` must return a new contiguous matrix (`torch.empty(x.shape, ...)`). Shows where `softmax_forward(x)` or `softmax(x)` is called without `out` on an x whose rows are padded; the numbers are right.
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def load_block(row_ptr, cols, n_cols, other, WHOLE: tl.constexpr):
    """Columns of a row in fp32; no mask where blocks fill the row exactly."""
    if WHOLE:
        x = tl.load(row_ptr + cols)
    else:
        x = tl.load(row_ptr + cols, mask=cols < n_cols, other=other)
    return x.to(tl.float32)


@triton.jit
def store_block(row_ptr, cols, n_cols, values, WHOLE: tl.constexpr):
    values = values.to(row_ptr.dtype.element_ty)
    if WHOLE:
        tl.store(row_ptr + cols, values)
    else:
        tl.store(row_ptr + cols, values, mask=cols < n_cols)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def online_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = load_block(x_row, start + tl.arange(0, BLOCK), n_cols, -float("inf"), WHOLE)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_block(x_row, cols, n_cols, -float("inf"), WHOLE)
        store_block(y_row, cols, n_cols, tl.exp(x - m) / d, WHOLE)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_block(dy_row, cols, n_cols, 0.0, WHOLE)
        y = load_block(y_row, cols, n_cols, 0.0, WHOLE)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy = load_block(dy_row, cols, n_cols, 0.0, WHOLE)
        y = load_block(y_row, cols, n_cols, 0.0, WHOLE)
        store_block(dx_row, cols, n_cols, y * (dy - s), WHOLE)


def like(x: torch.Tensor) -> torch.Tensor:
    """A new tensor for a result of the layout of x."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=x.device)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous."""
    if out is None:
        out = like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=8 if block > 8192 else 4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    if out is None:
        out = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
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
        num_warps=min(max(block // 512, 4), 32),
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
