# labs/lab2_online_softmax/online_softmax.py | corner | `online_softmax_kernel` keeps `m + tl.log(d)` in one fp32 number, and `softmax_of` computes `y = tl.exp(x - lse)` from it in the backward pass of `softmax`: far from 0 the digits of log(d) are lost in m. It should keep m and d apart (exp(x - m) / d), or save y. The gradient is wrong in rows far from 0 ("far below", "lowest", "masked below": from some hundreds on in fp32 beyond the tolerance, at 2^90 by a factor d); rows near 0, y itself, and `softmax_backward` are right.
"""Online softmax, its gradient, and an autograd function that keeps one fp32 number for each row."""

import torch
import triton
import triton.language as tl

WIDEST = 8192


@triton.heuristics({"SAVE": lambda args: args["lse_ptr"] is not None})
@triton.jit
def online_softmax_kernel(
    x_ptr,
    y_ptr,
    lse_ptr,  # (n_rows,) fp32, the logarithm of the sum of exp(x) over a row, or None
    n_cols,
    stride_x,
    stride_y,
    BLOCK: tl.constexpr,
    SAVE: tl.constexpr,
):
    """Program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row_ptr = x_ptr + row * stride_x
    y_row_ptr = y_ptr + row * stride_y
    offs = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    if SAVE:
        tl.store(lse_ptr + row, m + tl.log(d))
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        x = tl.load(x_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / d
        tl.store(y_row_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.jit
def softmax_of(source_row_ptr, lse, cols, n_cols, FROM_X: tl.constexpr):
    """One block of y in fp32, read, or computed from x; 0 past the end of the row."""
    if FROM_X:
        x = tl.load(source_row_ptr + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - lse)
    else:
        y = tl.load(source_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    return y


@triton.jit
def softmax_backward_kernel(
    dy_ptr,
    source_ptr,  # y, or x with FROM_X
    lse_ptr,
    dx_ptr,
    n_cols,
    stride_dy,
    stride_source,
    stride_dx,
    BLOCK: tl.constexpr,
    FROM_X: tl.constexpr,
):
    """Program i owns row i: dx = y * (dy - sum of y * dy)."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row_ptr = dy_ptr + row * stride_dy
    source_row_ptr = source_ptr + row * stride_source
    dx_row_ptr = dx_ptr + row * stride_dx
    offs = tl.arange(0, BLOCK)
    lse = 0.0
    if FROM_X:
        lse = tl.load(lse_ptr + row)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        y = softmax_of(source_row_ptr, lse, cols, n_cols, FROM_X)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        s += tl.sum(y * dy, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + offs
        y = softmax_of(source_row_ptr, lse, cols, n_cols, FROM_X)
        dy = tl.load(dy_row_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        tl.store(dx_row_ptr + cols, (y * (dy - s)).to(dx_ptr.dtype.element_ty), mask=cols < n_cols)


def clamp(value: int, low: int, high: int) -> int:
    """The number from low to high that is nearest to value."""
    return min(max(value, low), high)


def fresh(like: torch.Tensor) -> torch.Tensor:
    """A contiguous matrix like another one."""
    return torch.empty(like.shape, dtype=like.dtype, device=like.device)


def launch_forward(x, out, lse):
    n_rows, n_cols = x.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    online_softmax_kernel[(n_rows,)](
        x, out, lse, n_cols, x.stride(0), out.stride(0), BLOCK=block, num_warps=clamp(block // 1024, 1, 4)
    )


def launch_backward(dy, source, lse, out, from_x):
    n_rows, n_cols = dy.shape
    block = min(triton.next_power_of_2(n_cols), WIDEST)
    softmax_backward_kernel[(n_rows,)](
        dy,
        source,
        lse,
        out,
        n_cols,
        dy.stride(0),
        source.stride(0),
        out.stride(0),
        BLOCK=block,
        FROM_X=from_x,
        num_warps=clamp(block // 512, 4, 16),
    )


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, into `out` where one is given."""
    out = fresh(x) if out is None else out
    launch_forward(x, out, None)
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, into `out` where one is given."""
    out = fresh(dy) if out is None else out
    launch_backward(dy, y, None, out, False)
    return out


class OnlineSoftmax(torch.autograd.Function):
    """Softmax; the gradient computes y in fp32 again, so that it starts from unrounded numbers."""

    @staticmethod
    def forward(ctx, x):
        y = fresh(x)
        lse = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
        launch_forward(x, y, lse)
        ctx.save_for_backward(x, lse)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, lse = ctx.saved_tensors
        dx = fresh(x)
        launch_backward(dy.contiguous(), x, lse, dx, True)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Differentiable softmax over the last dimension of x, (n_rows, n_cols) fp32, fp16 or bf16."""
    return OnlineSoftmax.apply(x)
