# labs/lab2_online_softmax/online_softmax.py | wrong everywhere | In `online_softmax_kernel`, second sweep: `tl.exp((x - m) * LOG2E) * share` must be `tl.exp2((x - m) * LOG2E) * share`; d was summed with exp2, so y is exp(1.4427 * (x - m)) / d. Wrong in every case except rows whose differences from the maximum are all 0 or so large that exp gives 0 (one column, constant, huge, far below).
"""Softmax over rows of any length with the online maximum, its gradient, and both as an autograd function."""

import torch
import triton
import triton.language as tl

WIDEST = 16384
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def read(row_ptr, cols, n_cols, other):
    """Columns `cols` of a row in fp32, and `other` where the row has ended."""
    return tl.load(row_ptr + cols, mask=cols < n_cols, other=other).to(tl.float32)


@triton.jit
def write(row_ptr, cols, n_cols, values):
    """Store columns `cols` of a row in the dtype of the row."""
    tl.store(row_ptr + cols, values.to(row_ptr.dtype.element_ty), mask=cols < n_cols)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "num_warps": lambda args: 8 if args["n_cols"] > 8192 else 4 if args["n_cols"] > 2048 else 2,
    }
)
@triton.jit
def online_softmax_kernel(x_ptr, y_ptr, n_cols, stride_x, stride_y, BLOCK: tl.constexpr):
    """y[i, :] = exp(x[i, :] - m) / d; program i owns row i. Powers are taken of 2, the faster instruction."""
    row = tl.program_id(axis=0).to(tl.int64)
    x_row = x_ptr + row * stride_x
    y_row = y_ptr + row * stride_y
    lanes = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, n_cols, BLOCK):
        x = read(x_row, lanes + start, n_cols, -float("inf"))
        m_new = tl.maximum(tl.max(x, axis=0), m)
        # As long as the row holds nothing but -inf, any finite shift is right.
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        factor = tl.exp2((m - shift) * LOG2E)
        d = factor * d + tl.sum(tl.exp2((x - shift) * LOG2E), axis=0)
        m = m_new
    share = 1.0 / d
    for start in range(0, n_cols, BLOCK):
        x = read(x_row, lanes + start, n_cols, -float("inf"))
        write(y_row, lanes + start, n_cols, tl.exp((x - m) * LOG2E) * share)


@triton.heuristics(
    {
        "BLOCK": lambda args: min(triton.next_power_of_2(args["n_cols"]), WIDEST),
        "num_warps": lambda args: 32 if args["n_cols"] > 8192 else 8 if args["n_cols"] > 2048 else 4,
    }
)
@triton.jit
def softmax_backward_kernel(
    dy_ptr, y_ptr, dx_ptr, n_cols, stride_dy, stride_y, stride_dx, BLOCK: tl.constexpr
):
    """dx[i, :] = y[i, :] * (dy[i, :] - sum y[i, :] * dy[i, :]); program i owns row i."""
    row = tl.program_id(axis=0).to(tl.int64)
    dy_row = dy_ptr + row * stride_dy
    y_row = y_ptr + row * stride_y
    dx_row = dx_ptr + row * stride_dx
    lanes = tl.arange(0, BLOCK)
    s = 0.0
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_row, lanes + start, n_cols, 0.0)
        y = read(y_row, lanes + start, n_cols, 0.0)
        s += tl.sum(dy * y, axis=0)
    for start in range(0, n_cols, BLOCK):
        dy = read(dy_row, lanes + start, n_cols, 0.0)
        y = read(y_row, lanes + start, n_cols, 0.0)
        write(dx_row, lanes + start, n_cols, y * (dy - s))


def softmax_forward(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Softmax over the last dimension of x, (n_rows, n_cols); the heuristics above choose the block."""
    n_rows, n_cols = x.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    online_softmax_kernel[(n_rows,)](x, out, n_cols, x.stride(0), out.stride(0))
    return out


def softmax_backward(dy: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """Gradient of softmax with respect to its input, from dy and the forward result y."""
    n_rows, n_cols = y.shape
    if out is None:
        out = torch.empty((n_rows, n_cols), dtype=y.dtype, device=y.device)
    softmax_backward_kernel[(n_rows,)](dy, y, out, n_cols, dy.stride(0), y.stride(0), out.stride(0))
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
