# labs/lab2_online_softmax/online_softmax.py | corner | softmax, in `OnlineSoftmax.backward`: `rows = dy.reshape(-1, y.shape[1])` is a view with the strides of dy, no contiguous copy; it should be `dy.contiguous()`. Shows where the columns of dy are not contiguous: expanded (strides 0), transposed, every second column. Contiguous and padded gradients are right.
"""Softmax with exponentials to base 2, and its gradient. Rows of whole blocks need no masks."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def load_block(row_ptr, cols, n_cols, other, WHOLE: tl.constexpr, KEEP: tl.constexpr):
    """Return a block of a row in fp32; KEEP is what the cache is told."""
    if WHOLE:
        values = tl.load(row_ptr + cols, eviction_policy=KEEP)
    else:
        values = tl.load(row_ptr + cols, mask=cols < n_cols, other=other, eviction_policy=KEEP)
    return values.to(tl.float32)


@triton.jit
def store_block(row_ptr, cols, n_cols, values, WHOLE: tl.constexpr):
    """Store a block of a row, rounded to its dtype."""
    values = values.to(row_ptr.dtype.element_ty)
    if WHOLE:
        tl.store(row_ptr + cols, values)
    else:
        tl.store(row_ptr + cols, values, mask=cols < n_cols)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def exp2_softmax_kernel(
    x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr, WHOLE: tl.constexpr
):
    """y[i, :] = 2^(log2(e) * (x[i, :] - m)) / d, program i for row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_block(x_row, cols, n_cols, -float("inf"), WHOLE, "evict_last")
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp2((m - shift) * LOG2E) + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = load_block(x_row, cols, n_cols, -float("inf"), WHOLE, "evict_first")
        store_block(y_row, cols, n_cols, tl.exp2((x - m) * LOG2E) / d, WHOLE)


@triton.heuristics({"WHOLE": lambda args: args["n_cols"] % args["BLOCK"] == 0})
@triton.jit
def softmax_gradient_kernel(
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
    """dx[i, :] = y[i, :] * (dy[i, :] - s), program i for row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load_block(y_row, cols, n_cols, 0.0, WHOLE, "evict_last")
        dy = load_block(dy_row, cols, n_cols, 0.0, WHOLE, "evict_last")
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        y = load_block(y_row, cols, n_cols, 0.0, WHOLE, "evict_first")
        dy = load_block(dy_row, cols, n_cols, 0.0, WHOLE, "evict_first")
        store_block(dx_row, cols, n_cols, y * (dy - s), WHOLE)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), with contiguous columns."""
    n_rows, n_cols = x.shape
    if out is None:
        out = x.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    exp2_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=min(max(block // 1024, 2), 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient with respect to the input of softmax, from dy and y with contiguous columns."""
    n_rows, n_cols = y.shape
    if out is None:
        out = y.new_empty((n_rows, n_cols))
    block = min(triton.next_power_of_2(n_cols), BACKWARD_BLOCK)
    softmax_gradient_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block,
        num_warps=min(max(block // 512, 4), 16),
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Both functions for autograd."""

    @staticmethod
    def forward(ctx, x):
        """Compute y, and keep it for the gradient."""
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        """Compute dx from dy, as rows of the length of y."""
        (y,) = ctx.saved_tensors
        rows = dy.reshape(-1, y.shape[1])
        return softmax_backward(rows, y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols)."""
    return OnlineSoftmax.apply(x)
