# labs/lab2_online_softmax/online_softmax.py | race | softmax_backward_kernel, s and ready (scratch tensors of one number for each row): program (row, 0) stores s[row] in line 69 and the flag ready[row] in line 71 with plain stores, programs (row, k) with k > 0 load the flag in lines 72 and 74 and s[row] in line 75 in the same launch, for n_cols > 512; values right one program after the other
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

FORWARD_BLOCK = 16384
PART = 512  # columns of a program of the backward pass


@triton.jit
def online_softmax_kernel(
    x_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like x
    n_cols,
    stride_x,  # elements from one row of x to the next
    stride_y,
    BLOCK: tl.constexpr,
):
    """y[i, :] = exp(x[i, :] - m) / d, m = max x[i, :], d = sum exp(x[i, :] - m); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    m = -float("inf")  # maximum of the columns seen so far
    d = 0.0  # sum of exp(x - m) over the columns seen so far
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_backward_kernel(
    dy_ptr,  # (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous
    y_ptr,  # (n_rows, n_cols) like dy, the result of the forward pass
    dx_ptr,  # (n_rows, n_cols) like dy
    s_ptr,  # (n_rows,) fp32, sum y * dy of each row
    ready_ptr,  # (n_rows,) int32, 0 before the launch, 1 as soon as s of the row is there
    n_cols,
    stride_dy,
    stride_y,
    stride_dx,
    BLOCK: tl.constexpr,
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program (i, k) owns block k of row i.

    Program (i, 0) computes the sum for all the programs of its row.
    """
    row = tl.program_id(axis=0).to(tl.int64)
    part = tl.program_id(axis=1)
    dy_row_ptr = dy_ptr + row * stride_dy
    y_row_ptr = y_ptr + row * stride_y
    if part == 0:
        products = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, n_cols, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            dys = tl.load(dy_row_ptr + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
            ys = tl.load(y_row_ptr + columns, mask=columns < n_cols, other=0.0).to(tl.float32)
            products += ys * dys
        tl.store(s_ptr + row, tl.sum(products, axis=0))
        tl.debug_barrier()
        tl.store(ready_ptr + row, 1)
    ready = tl.load(ready_ptr + row, volatile=True)
    while ready == 0:
        ready = tl.load(ready_ptr + row, volatile=True)
    s = tl.load(s_ptr + row)
    cols = part * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    y = tl.load(y_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    dx = y * (dy - s)
    tl.store(dx_ptr + row * stride_dx + cols, dx.to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16, columns contiguous.

    Rows of x and of `out` may be any number of elements apart; the result goes to `out`, of the same shape,
    where one is given. Each row holds at least one finite value; -inf is allowed beside it. After Milakov and
    Gimelshein, arXiv:1805.02867, algorithm 3.
    """
    if out is None:
        out = torch.empty_like(x)
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), FORWARD_BLOCK)
    warps = 8 if block == FORWARD_BLOCK else clamp(block // 1024, 1, 4)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y, both (n_rows, n_cols).

    Rows may be any number of elements apart; the result goes to `out` where one is given.
    """
    if out is None:
        out = torch.empty_like(dy)
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), PART)
    s = torch.empty((n_rows,), device=dy.device, dtype=torch.float32)
    ready = torch.zeros((n_rows,), device=dy.device, dtype=torch.int32)
    softmax_backward_kernel[(n_rows, triton.cdiv(n_cols, block))](
        dy, y, out, s, ready, n_cols, dy.stride(0), y.stride(0), out.stride(0), BLOCK=block
    )
    return out


class OnlineSoftmax(torch.autograd.Function):
    """softmax_forward with softmax_backward as its gradient."""

    @staticmethod
    def forward(ctx, x):
        """y from x; what ctx.save_for_backward is given, backward finds in ctx.saved_tensors."""
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
