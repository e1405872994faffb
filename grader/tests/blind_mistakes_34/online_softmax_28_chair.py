# labs/lab2_online_softmax/online_softmax.py | corner | softmax_backward_kernel, first loop, `tl.sum(y * dy)` without an axis: it adds up the whole tile, so that all rows of a program share the sum of all of them. A program has ROWS > 1 rows only where n_cols <= 512 (ROWS is 1024 // BLOCK, at most 8); there every matrix of more than one row is wrong (but for a last program with a single row), wider matrices are right. It should be `tl.sum(y * dy, axis=1)`, with s of shape (ROWS,) and `s[:, None]` in the second loop. Shows in softmax_backward and in the gradient of softmax(); the forward pass is right.
"""Softmax of rows and its gradient; the backward pass gives several narrow rows to a program."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
BACKWARD_BLOCK = 16384


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """One program, one row."""
    i = tl.program_id(axis=0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for j in range(0, n_cols, BLOCK):
        js = j + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i * stride_x + js, mask=js < n_cols, other=-float("inf")).to(tl.float32)
        above = tl.maximum(tl.max(x, axis=0), m)
        ref = tl.where(above == -float("inf"), 0.0, above)
        d = tl.exp(m - ref) * d + tl.sum(tl.exp(x - ref), axis=0)
        m = above
    for j in range(0, n_cols, BLOCK):
        js = j + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i * stride_x + js, mask=js < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_ptr + i * stride_y + js, y.to(y_ptr.dtype.element_ty), mask=js < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    y_ptr,
    dx_ptr,
    n_rows,
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """ROWS rows to a program, a tile of ROWS x BLOCK at a time."""
    i = tl.program_id(axis=0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    i = i[:, None]
    s = 0.0
    for j in range(0, n_cols, BLOCK):
        js = j + tl.arange(0, BLOCK)[None, :]
        mask = (i < n_rows) & (js < n_cols)
        dy = tl.load(dy_ptr + i * stride_dy + js, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i * stride_y + js, mask=mask, other=0.0).to(tl.float32)
        s += tl.sum(y * dy)
    for j in range(0, n_cols, BLOCK):
        js = j + tl.arange(0, BLOCK)[None, :]
        mask = (i < n_rows) & (js < n_cols)
        dy = tl.load(dy_ptr + i * stride_dy + js, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + i * stride_y + js, mask=mask, other=0.0).to(tl.float32)
        dx = y * (dy - s)
        tl.store(dx_ptr + i * stride_dx + js, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, FORWARD_BLOCK)
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 8)
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = clamp(triton.next_power_of_2(n_cols), 1, BACKWARD_BLOCK)
    rows = clamp(1024 // block, 1, 8)
    softmax_backward_kernel[(triton.cdiv(n_rows, rows),)](
        dy,
        y,
        out,
        n_rows,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        ROWS=rows,
        BLOCK=block,
        num_warps=clamp(block // 512, 4, 32),
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
    return OnlineSoftmax.apply(x)
