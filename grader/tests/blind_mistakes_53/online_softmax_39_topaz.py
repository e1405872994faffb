# labs/lab2_online_softmax/online_softmax.py | right | Up to 256 rows of more than 8192 columns are split among programs: a first launch stores maximum and sum (or the sum of y * dy) of each part, a second one joins the parts and stores the result. Other matrices have one program for each row.
"""Softmax over rows and its gradient; few long rows are shared by many programs, in two launches."""

import torch
import triton
import triton.language as tl

BLOCK = 8192  # columns of one part of a row
FEW = 256  # rows that do not fill a GPU


@triton.jit
def online(m, d, m_part, d_part):
    """Maximum and sum of what is in one of two parts of a row, or in both."""
    m_new = tl.maximum(m, m_part)
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    return m_new, d * tl.exp(m - shift) + d_part * tl.exp(m_part - shift)


@triton.jit
def block_of_x(x_row, cols, n_cols):
    return tl.load(x_row + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)


@triton.jit
def maximum_and_sum(x):
    m = tl.max(x, axis=0)
    return m, tl.sum(tl.exp(x - tl.where(m == -float("inf"), 0.0, m)), axis=0)


@triton.jit
def store_shares(y_row, cols, n_cols, x, m, d):
    tl.store(y_row + cols, (tl.exp(x - m) / d).to(y_row.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def forward_row(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = block_of_x(x_ptr + row * stride_x, start + tl.arange(0, BLOCK), n_cols)
        m_part, d_part = maximum_and_sum(x)
        m, d = online(m, d, m_part, d_part)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = block_of_x(x_ptr + row * stride_x, cols, n_cols)
        store_shares(y_ptr + row * stride_y, cols, n_cols, x, m, d)


@triton.jit
def forward_part(x_ptr, m_ptr, d_ptr, n_cols, n_parts, stride_x, BLOCK: tl.constexpr):
    part = tl.program_id(0) % n_parts
    row = (tl.program_id(0) // n_parts).to(tl.int64)
    x = block_of_x(x_ptr + row * stride_x, part * BLOCK + tl.arange(0, BLOCK), n_cols)
    m, d = maximum_and_sum(x)
    tl.store(m_ptr + row * n_parts + part, m)
    tl.store(d_ptr + row * n_parts + part, d)


@triton.jit
def forward_whole(x_ptr, y_ptr, m_ptr, d_ptr, n_cols, n_parts, stride_x, stride_y, BLOCK: tl.constexpr):
    part = tl.program_id(0) % n_parts
    row = (tl.program_id(0) // n_parts).to(tl.int64)
    m = -float("inf")
    d = 0.0
    for i in range(0, n_parts):
        m_part = tl.load(m_ptr + row * n_parts + i)
        d_part = tl.load(d_ptr + row * n_parts + i)
        m, d = online(m, d, m_part, d_part)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    x = block_of_x(x_ptr + row * stride_x, cols, n_cols)
    store_shares(y_ptr + row * stride_y, cols, n_cols, x, m, d)


@triton.jit
def block_of_both(dy_row, y_row, cols, n_cols):
    dy = tl.load(dy_row + cols, mask=cols < n_cols, other=0.0)
    y = tl.load(y_row + cols, mask=cols < n_cols, other=0.0)
    return dy.to(tl.float32), y.to(tl.float32)


@triton.jit
def backward_row(dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy, y = block_of_both(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        dy, y = block_of_both(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
        dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + row * stride_dx + cols, dx, mask=cols < n_cols)


@triton.jit
def backward_part(dy_ptr, y_ptr, s_ptr, n_cols, n_parts, stride_dy, stride_y, BLOCK: tl.constexpr):
    part = tl.program_id(0) % n_parts
    row = (tl.program_id(0) // n_parts).to(tl.int64)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy, y = block_of_both(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
    tl.store(s_ptr + row * n_parts + part, tl.sum(dy * y, axis=0))


@triton.jit
def backward_whole(
    dy_ptr, y_ptr, dx_ptr, s_ptr, n_cols, n_parts, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    part = tl.program_id(0) % n_parts
    row = (tl.program_id(0) // n_parts).to(tl.int64)
    s = 0.0
    for i in range(0, n_parts):
        s += tl.load(s_ptr + row * n_parts + i)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy, y = block_of_both(dy_ptr + row * stride_dy, y_ptr + row * stride_y, cols, n_cols)
    dx = (y * (dy - s)).to(dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + row * stride_dx + cols, dx, mask=cols < n_cols)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols), columns contiguous."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    n_parts = triton.cdiv(n_cols, block)
    strides = (x.stride(0), out.stride(0))
    shape = {"BLOCK": block, "num_warps": max(block // 1024, 1)}
    if n_parts == 1 or n_rows > FEW:
        forward_row[(n_rows,)](x, out, n_cols, *strides, **shape)
        return out
    m = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    d = torch.empty((n_rows, n_parts), dtype=torch.float32, device=x.device)
    grid = (n_rows * n_parts,)
    forward_part[grid](x, m, d, n_cols, n_parts, x.stride(0), **shape)
    forward_whole[grid](x, out, m, d, n_cols, n_parts, *strides, **shape)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = dy.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=dy.dtype, device=dy.device)
    block = min(triton.next_power_of_2(n_cols), BLOCK)
    n_parts = triton.cdiv(n_cols, block)
    strides = (dy.stride(0), y.stride(0), out.stride(0))
    shape = {"BLOCK": block, "num_warps": max(block // 512, 1)}
    if n_parts == 1 or n_rows > FEW:
        backward_row[(n_rows,)](dy, y, out, n_cols, *strides, **shape)
        return out
    s = torch.empty((n_rows, n_parts), dtype=torch.float32, device=dy.device)
    grid = (n_rows * n_parts,)
    backward_part[grid](dy, y, s, n_cols, n_parts, dy.stride(0), y.stride(0), **shape)
    backward_whole[grid](dy, y, out, s, n_cols, n_parts, *strides, **shape)
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
    """Differentiable softmax over the last dimension of x."""
    return OnlineSoftmax.apply(x)
