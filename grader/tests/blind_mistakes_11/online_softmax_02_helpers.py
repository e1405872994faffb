# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | the gradient is y * dy - s (`gy - s` in the last loop of the backward kernel, gy being the product that was summed); must be y * (dy - s). softmax_backward and the gradient of softmax are wrong in every row with s other than 0; softmax_forward is right.
"""Row softmax with small device helpers for the masked rows."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 8192
BACKWARD_BLOCK = 8192


@triton.jit
def fetch(row_ptr, cols, n_cols, fill):
    """Columns of a row in fp32; those past the end are fill."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=fill).to(tl.float32)


@triton.jit
def put(row_ptr, cols, n_cols, values):
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def fold(m, d, x):
    """Maximum and scaled sum, after one more block."""
    m_new = tl.maximum(m, tl.max(x, axis=0))
    safe = tl.where(m_new == -float("inf"), 0.0, m_new)
    d_new = d * tl.exp(m - safe) + tl.sum(tl.exp(x - safe), axis=0)
    return m_new, d_new


@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row, y_row = x_ptr + row * stride_x, y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row, start + lanes, n_cols, -float("inf"))
        m, d = fold(m, d, x)
    for start in range(0, n_cols, BLOCK):
        x = fetch(x_row, start + lanes, n_cols, -float("inf"))
        put(y_row, start + lanes, n_cols, tl.exp(x - m) / d)


@triton.jit
def softmax_backward_kernel(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dy_row, y_row, dx_row = dy_ptr + row * stride_dy, y_ptr + row * stride_y, dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        gy = fetch(dy_row, start + lanes, n_cols, 0.0) * fetch(y_row, start + lanes, n_cols, 0.0)
        s += tl.sum(gy, axis=0)
    for start in range(0, n_cols, BLOCK):
        gy = fetch(dy_row, start + lanes, n_cols, 0.0) * fetch(y_row, start + lanes, n_cols, 0.0)
        put(dx_row, start + lanes, n_cols, gy - s)


def block_for(n_cols: int, widest: int) -> int:
    return min(triton.next_power_of_2(n_cols), widest)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    online_softmax_kernel[(n_rows,)](
        x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block_for(n_cols, FORWARD_BLOCK), num_warps=4
    )
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    softmax_backward_kernel[(n_rows,)](
        dy,
        y,
        out,
        n_cols,
        dy.stride(0),
        y.stride(0),
        out.stride(0),
        BLOCK=block_for(n_cols, BACKWARD_BLOCK),
        num_warps=8,
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = softmax_forward(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        y = ctx.saved_tensors[0]
        return softmax_backward(dy.contiguous(), y)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return OnlineSoftmax.apply(x)
